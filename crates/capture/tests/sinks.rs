//! Files of the sinks, read back by fyke and by libpcap; files are rotated and named as with tcpdump.

mod common;

use common::{Owned, captures, drain, have_tcpdump, tcpdump_reads};
use fyke_capture::{
    Account, Format, Interface, MemorySource, Next, Rotation, Source, WriteOptions, create_file,
    open_file,
};
use fyke_frame::{Direction, Frame, LinkType, Meta};
use fyke_testkit::corpus::Corpus;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A few hundred frames from three interfaces of two link types, with nanoseconds and directions.
fn several() -> MemorySource {
    let mut source = MemorySource::new(LinkType::EN10MB);
    source.add_interface(Interface {
        description: "behind the wall".to_owned(),
        snaplen: 1500,
        ..Interface::new("wg0", LinkType::RAW)
    });
    source.add_interface(Interface::new("eth1", LinkType::EN10MB));
    let directions = [
        Direction::Unknown,
        Direction::Inbound,
        Direction::Broadcast,
        Direction::Multicast,
        Direction::OtherHost,
        Direction::Outbound,
    ];
    for number in 0..300usize {
        let interface = (number % 3) as u32;
        let link = if interface == 1 { LinkType::RAW } else { LinkType::EN10MB };
        let data: Vec<u8> = (0..number + 1).map(|at| (at * number) as u8).collect();
        let direction = directions[number % directions.len()];
        source.push(&Frame {
            wire_len: data.len() as u32 + 3,
            timestamp_ns: 1_700_000_000_123_456_789 + number as u64 * 1_000_003,
            interface,
            meta: Meta { direction, ..Meta::default() },
            ..Frame::new(link, &data)
        });
    }
    source
}

fn write(source: &mut dyn Source, path: &Path, options: WriteOptions) -> u64 {
    let mut sink = create_file(path, options).expect("a new file");
    while let Ok(Next::Frames(batch, look_back)) = source.next() {
        for frame in batch.frames() {
            let interface = &look_back.interfaces()[frame.interface as usize];
            sink.write(interface, frame).expect("written");
        }
    }
    let stats = sink.finish().expect("whole");
    assert_eq!(stats.bytes, std::fs::metadata(path).map_or(stats.bytes, |file| file.len()));
    stats.frames
}

fn read(path: &Path) -> Vec<Owned> {
    let (frames, error) = drain(&mut open_file(path).expect("a capture"));
    assert!(error.is_none(), "{error:?}");
    frames
}

#[test]
fn pcapng_keeps_everything() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("several");
    assert_eq!(write(&mut several(), &path, WriteOptions::default()), 300);
    let mut source = open_file(&path).expect("a capture");
    let mut original = several();
    let mut seen = 0;
    loop {
        match (source.next().expect("sound"), original.next().expect("sound")) {
            (Next::Frames(ours, read), Next::Frames(theirs, was)) => {
                assert_eq!(ours.len(), theirs.len());
                for (our, their) in ours.frames().iter().zip(theirs.frames()) {
                    assert_eq!(our.data, their.data);
                    assert_eq!(our.wire_len, their.wire_len);
                    assert_eq!(our.timestamp_ns, their.timestamp_ns);
                    assert_eq!((our.link, our.meta), (their.link, their.meta));
                    let described = &read.interfaces()[our.interface as usize];
                    assert_eq!(described, &was.interfaces()[their.interface as usize]);
                    seen += 1;
                }
            }
            (Next::End, Next::End) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, 300);
}

#[test]
fn pcap_holds_one_link_type() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("one.pcap");
    let mut sink = create_file(&path, WriteOptions::default()).expect("a new file");
    let interface = Interface::new("eth0", LinkType::EN10MB);
    sink.write(&interface, &Frame::new(LinkType::EN10MB, &[1; 60])).expect("written");
    let refused = sink.write(&interface, &Frame::new(LinkType::RAW, &[1; 60]));
    let text = refused.expect_err("another link type").to_string();
    assert!(text.ends_with("this one EN10MB, not RAW (write to a .pcapng file)"), "{text}");
    drop(sink);
    assert_eq!(read(&path).len(), 1, "what was written before is whole");
}

#[test]
fn microseconds_and_nanoseconds() {
    let folder = tempfile::tempdir().expect("a folder");
    for (asked, expected) in
        [(None, 123_456_789), (Some(true), 123_456_789), (Some(false), 123_456_000)]
    {
        let path = folder.path().join("times.cap");
        let mut sink =
            create_file(&path, WriteOptions { nanoseconds: asked, ..Default::default() })
                .expect("a new file");
        let interface = Interface::new("eth0", LinkType::EN10MB);
        let frame = Frame { timestamp_ns: 5_123_456_789, ..Frame::new(LinkType::EN10MB, &[1; 60]) };
        sink.write(&interface, &frame).expect("written");
        sink.finish().expect("whole");
        assert_eq!(read(&path)[0].timestamp_ns, 5_000_000_000 + expected);
    }
}

#[test]
fn frames_are_cut() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["cut.pcap", "cut.pcapng"] {
        let path = folder.path().join(name);
        let options = WriteOptions { snaplen: 64, ..Default::default() };
        let mut source = MemorySource::new(LinkType::EN10MB);
        source.push(&Frame::new(LinkType::EN10MB, &[7; 1000]));
        source.push(&Frame::new(LinkType::EN10MB, &[7; 40]));
        write(&mut source, &path, options);
        let frames = read(&path);
        let lens: Vec<_> = frames.iter().map(|frame| (frame.data.len(), frame.wire_len)).collect();
        assert_eq!(lens, [(64, 1000), (40, 40)], "{name}");
    }
}

#[test]
fn a_file_without_frames_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["none.pcap", "none.pcapng"] {
        for interfaces in [Vec::new(), vec![Interface::new("x", LinkType::LINUX_SLL2)]] {
            let path = folder.path().join(name);
            let options = WriteOptions { interfaces: interfaces.clone(), ..Default::default() };
            let sink = create_file(&path, options).expect("a new file");
            assert_eq!(sink.finish().expect("whole").frames, 0);
            let mut source = open_file(&path).expect("a capture");
            assert!(matches!(source.next(), Ok(Next::End)));
            if let Some(interface) = interfaces.first() {
                assert_eq!(source.interfaces()[0].link, interface.link);
            }
        }
    }
}

#[test]
fn accounting_is_stored() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("account.pcapng");
    let interface = Interface::new("eth0", LinkType::EN10MB);
    let mut sink = create_file(&path, WriteOptions::default()).expect("a new file");
    sink.write(&interface, &Frame::new(LinkType::EN10MB, &[1; 60])).expect("written");
    let account = Account {
        received: Some(10),
        dropped: Some(2),
        accepted: Some(3),
        delivered: Some(1),
        interface_dropped: None,
    };
    sink.account(&interface, &account);
    sink.finish().expect("whole");
    let bytes = std::fs::read(&path).expect("the file");
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four"));
    let mut at = 0;
    let mut counters = Vec::new();
    while at < bytes.len() {
        if word(at) == 5 {
            let mut option = at + 20;
            while word(option) != 0 {
                let value = bytes[option + 4..option + 12].try_into().expect("eight");
                counters.push((word(option) & 0xffff, u64::from_ne_bytes(value)));
                option += 12;
            }
        }
        at += word(at + 4) as usize;
    }
    assert_eq!(counters, [(4, 10), (6, 3), (7, 2), (8, 1)]);
    assert_eq!(read(&path).len(), 1);
}

#[test]
fn every_frame_at_once_when_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["at-once.pcap", "at-once.pcapng"] {
        let path = folder.path().join(name);
        let options = WriteOptions { flush_each: true, ..Default::default() };
        let mut sink = create_file(&path, options).expect("a new file");
        let interface = Interface::new("eth0", LinkType::EN10MB);
        for count in 1..5 {
            sink.write(&interface, &Frame::new(LinkType::EN10MB, &[1; 60])).expect("written");
            assert_eq!(read(&path).len(), count, "before the sink is finished");
        }
    }
}

#[test]
fn captures_survive_a_copy_and_libpcap_agrees() {
    let folder = tempfile::tempdir().expect("a folder");
    let with_tcpdump = have_tcpdump();
    let (mut same_bytes, mut tried) = (0, 0);
    for path in captures() {
        let small = std::fs::metadata(&path).is_ok_and(|file| file.len() < 1 << 20);
        let Ok(mut source) = open_file(&path) else { continue };
        let (original, _) = drain(&mut source);
        let links: Vec<_> = original.iter().map(|frame| frame.link).collect();
        let one_link = links.windows(2).all(|pair| pair[0] == pair[1]);
        for name in ["copy.pcapng", "copy.pcap"] {
            if !small || name == "copy.pcap" && !one_link {
                continue;
            }
            let copy = folder.path().join(name);
            let mut source = open_file(&path).expect("opened before");
            let interfaces = source.interfaces().to_vec();
            write(&mut source, &copy, WriteOptions { interfaces, ..Default::default() });
            let copied = read(&copy);
            assert_eq!(copied.len(), original.len(), "{}", path.display());
            for (new, old) in copied.iter().zip(&original) {
                let known = LinkType(old.link).description().map_or(old.link, |l| l.numbers[0].0);
                assert_eq!((&new.data, new.wire_len), (&old.data, old.wire_len));
                assert_eq!(new.link, known, "{}", path.display());
                let seconds = old.timestamp_ns / 1_000_000_000;
                if name == "copy.pcapng" || seconds < u64::from(u32::MAX) {
                    assert_eq!(new.timestamp_ns, old.timestamp_ns, "{}", path.display());
                }
            }
            if name == "copy.pcap" && with_tcpdump {
                tried += 1;
                same_bytes += usize::from(same_as_tcpdump(&path, &copy, folder.path()));
            }
        }
    }
    println!("{same_bytes} of {tried} copies are byte for byte what tcpdump writes");
    // The others have nanoseconds, which tcpdump drops, or frame check sequences, or are damaged.
    assert!(same_bytes >= tried * 4 / 5, "{same_bytes} of {tried}");
}

/// True if `tcpdump -r ORIGINAL -w …` writes exactly the bytes of `copy`.
fn same_as_tcpdump(original: &Path, copy: &Path, folder: &Path) -> bool {
    let theirs = folder.join("theirs.pcap");
    let output = Command::new("tcpdump").arg("-r").arg(original).arg("-w").arg(&theirs).output();
    output.is_ok_and(|output| output.status.success())
        && std::fs::read(theirs).expect("theirs") == std::fs::read(copy).expect("ours")
}

#[test]
fn libpcap_reads_our_pcapng() {
    if !have_tcpdump() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plain.pcapng");
    let mut source = MemorySource::new(LinkType::EN10MB);
    for len in 1..200usize {
        let data = vec![len as u8; len];
        let timestamp_ns = 1_600_000_000_000_000_001 + len as u64;
        source.push(&Frame { timestamp_ns, ..Frame::new(LinkType::EN10MB, &data) });
    }
    write(&mut source, &path, WriteOptions::default());
    let (theirs, error) = tcpdump_reads(&path);
    assert_eq!(error, None);
    assert!(theirs == read(&path));
}

/// Files of a folder with their bytes, sorted by name.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, std::fs::read(path).expect("a file"))
        })
        .collect();
    files.sort();
    files
}

#[test]
fn rotation_by_size_as_tcpdump_does_it() {
    if !have_tcpdump() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let capture = folder.path().join("large.pcap");
    let frames: Vec<_> = (0..4_000).map(|number| vec![number as u8; 60 + number % 1_400]).collect();
    std::fs::write(&capture, fyke_testkit::pcap::file(1, &frames)).expect("written");
    for count in [None, Some(2), Some(12)] {
        let (ours, theirs) =
            (tempfile::tempdir().expect("ours"), tempfile::tempdir().expect("theirs"));
        let mut command = Command::new("tcpdump");
        command.args(["-Z", "root", "-C", "1", "-r"]).arg(&capture);
        command.arg("-w").arg(theirs.path().join("out.pcap"));
        if let Some(count) = count {
            command.args(["-W", &count.to_string()]);
        }
        assert!(command.output().expect("tcpdump runs").status.success());

        let mut source = open_file(&capture).expect("a capture");
        let interfaces = source.interfaces().to_vec();
        let rotation = Rotation { size_millions: Some(1), seconds: None, count };
        let options = WriteOptions { interfaces, rotation, ..Default::default() };
        let mut sink = create_file(&ours.path().join("out.pcap"), options).expect("a file");
        while let Ok(Next::Frames(batch, look_back)) = source.next() {
            for frame in batch.frames() {
                sink.write(&look_back.interfaces()[0], frame).expect("written");
            }
        }
        let stats = sink.finish().expect("whole");
        assert!(stats.files >= 3, "{stats:?}");
        let (ours, theirs) = (files(ours.path()), files(theirs.path()));
        let names = |files: &[(String, Vec<u8>)]| -> Vec<String> {
            files.iter().map(|(name, bytes)| format!("{name} {}", bytes.len())).collect()
        };
        assert_eq!(names(&ours), names(&theirs), "-W {count:?}");
        assert!(ours == theirs, "the same bytes, -W {count:?}");
    }
}

#[test]
fn rotation_by_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let rotation = Rotation { size_millions: None, seconds: Some(1), count: Some(2) };
    let options = WriteOptions { rotation, ..Default::default() };
    let mut sink = create_file(&folder.path().join("at-%s.pcapng"), options).expect("a file");
    let interface = Interface::new("eth0", LinkType::EN10MB);
    let mut written = 0;
    let error = loop {
        match sink.write(&interface, &Frame::new(LinkType::EN10MB, &[1; 60])) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 500, "the second file ends within two seconds");
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    assert!(error.is_file_limit(), "{error}");
    drop(sink);
    let files = files(folder.path());
    assert_eq!(files.len(), 2, "{:?}", files.iter().map(|file| &file.0).collect::<Vec<_>>());
    let in_files: usize = files.iter().map(|(name, _)| read(&folder.path().join(name)).len()).sum();
    assert_eq!(in_files, written);
}

#[test]
fn formats_and_errors() {
    for (name, format) in [
        ("a.pcap", Format::Pcap),
        ("a.CAP", Format::Pcap),
        ("a.pcapng", Format::Pcapng),
        ("a", Format::Pcapng),
        ("-", Format::Pcapng),
    ] {
        assert_eq!(Format::of(Path::new(name)), format, "{name}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("no/such/folder.pcap");
    let refused = create_file(&missing, WriteOptions::default());
    let text = refused.err().expect("refused").to_string();
    assert!(text.contains("folder.pcap: No such file"), "{text}");
    let rotation = Rotation { size_millions: Some(1), ..Default::default() };
    let refused = create_file(Path::new("-"), WriteOptions { rotation, ..Default::default() });
    assert!(refused.is_err(), "standard output cannot be rotated");
}

/// The example `copy`, which Cargo builds with the tests.
fn copy_program() -> Option<PathBuf> {
    let tests = std::env::current_exe().expect("this test has a file");
    let program = tests.parent()?.parent()?.join("examples/copy");
    if !program.exists() {
        println!("skipped: the example `copy` has not been built");
        return None;
    }
    Some(program)
}

#[test]
fn pipes_both_ways_with_tcpdump() {
    if !have_tcpdump() {
        return;
    }
    let Some(copy) = copy_program() else { return };
    let capture = Corpus::open().own("mixed/busy.pcap");
    let (expected, _) = tcpdump_reads(&capture);
    // tcpdump writes a pipe that fyke reads; fyke writes a pipe that tcpdump reads.
    let mut first = Command::new("tcpdump")
        .args(["--time-stamp-precision=nano", "-U", "-w", "-", "-r"])
        .arg(&capture)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("tcpdump runs");
    let mut second = Command::new(copy)
        .args(["-", "-"])
        .stdin(first.stdout.take().expect("a pipe"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("copy runs");
    let third = Command::new("tcpdump")
        .args(["--time-stamp-precision=nano", "-w", "-", "-r", "-"])
        .stdin(second.stdout.take().expect("a pipe"))
        .output()
        .expect("tcpdump runs");
    assert!(first.wait().expect("tcpdump ends").success());
    assert!(second.wait().expect("copy ends").success());
    assert!(common::parse_native(&third.stdout) == expected, "all the way through");
}

#[test]
fn a_pipe_delivers_frames_as_they_come() {
    let Some(copy) = copy_program() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("whole.pcap");
    let mut memory = MemorySource::new(LinkType::EN10MB);
    for len in [60, 1500, 60] {
        memory.push(&Frame::new(LinkType::EN10MB, &vec![1; len]));
    }
    write(&mut memory, &path, WriteOptions::default());
    let bytes = std::fs::read(&path).expect("the file");
    let out = folder.path().join("out.pcap");
    let mut child =
        Command::new(copy).arg("-").arg(&out).stdin(Stdio::piped()).spawn().expect("copy runs");
    let mut pipe = child.stdin.take().expect("a pipe");
    // The header, two frames, and half of the third.
    let end = bytes.len() - 30;
    std::io::Write::write_all(&mut pipe, &bytes[..end]).expect("written");
    let expected = 24 + 76 + 1516;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while std::fs::metadata(&out).map_or(0, |file| file.len()) < expected {
        assert!(std::time::Instant::now() < deadline, "the frames do not come through");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(pipe);
    assert!(!child.wait().expect("copy ends").success(), "the third frame is cut short");
    assert_eq!(read(&out).len(), 2);
}
