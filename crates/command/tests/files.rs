//! Capture files as users handle them: several read as one, compressed ones, and a command for each complete file.

mod common;

use common::{FYKE, folder, frames_of};
use fyke_capture::{Interface, WriteOptions, create_file};
use fyke_frame::{Frame, LinkType};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs `fyke dump` with words that are separated by spaces.
fn dump(words: &str) -> Output {
    let mut command = Command::new(FYKE);
    command.arg("dump").args(words.split(' ')).stdin(Stdio::null()).output().unwrap()
}

/// Writes a capture of frames a millisecond apart, the first at `start_ms`.
fn make(path: &Path, count: u64, start_ms: u64, len: usize) {
    let mut sink = create_file(path, WriteOptions::default()).unwrap();
    let interface = Interface::new("", LinkType::EN10MB);
    for number in 0..count {
        let data = common::datagram(5000 + (number % 5) as u16, len);
        let timestamp_ns = (start_ms + 2 * number) * 1_000_000;
        let frame = Frame { timestamp_ns, ..Frame::new(LinkType::EN10MB, &data) };
        sink.write(&interface, &frame).unwrap();
    }
    sink.finish().unwrap();
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Checks the exit status and the text of a refusal.
fn refused(words: &str, text: &str) {
    let output = dump(words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words}: {said}");
    assert!(said.contains(text), "{words}: {said}");
}

#[test]
fn several_files_are_one_capture_in_the_order_of_time() {
    let (_folder, at) = folder();
    let [a, b, list] = ["a.pcap", "b.pcapng", "list"].map(at);
    make(&a, 300, 1000, 100);
    make(&b, 200, 1001, 100);
    let (a, b, list) = (a.display(), b.display(), list.display());
    std::fs::write(list.to_string(), format!("{b}\n\n{a}\n")).unwrap();
    let lines = stdout(&dump(&format!("-tt -n -r {a} -r {b}")));
    let times: Vec<&str> = lines.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert!(times.len() == 500 && times.is_sorted(), "{lines}");
    let of_list = stdout(&dump(&format!("-tt -n -V {list}")));
    assert!(of_list == lines, "frames of different times have one order, whatever the list's");
    assert_eq!(stdout(&dump(&format!("-r {a} -V {list} --count"))).trim(), "800");
    assert_eq!(stdout(&dump(&format!("-r {a} -r {b} --count udp port 5001"))).trim(), "100");
    // A damaged file ends alone.
    let file = std::fs::File::options().write(true).open(a.to_string()).unwrap();
    file.set_len(file.metadata().unwrap().len() - 7).unwrap();
    let output = dump(&format!("-r {a} -r {b} --count"));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "499");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cut short"));
}

#[test]
fn lists_that_cannot_be_read_are_refused() {
    let (_folder, at) = folder();
    let [a, empty, long, missing] = ["a.pcap", "empty", "long", "missing"].map(at);
    make(&a, 3, 0, 100);
    std::fs::write(&empty, "\n").unwrap();
    std::fs::write(&long, format!("{}\n", a.display()).repeat(1001)).unwrap();
    refused(&format!("-V {}", empty.display()), "the list is empty");
    refused(&format!("-V {}", long.display()), "1001 files are more than the 1000");
    refused(&format!("-V {}", missing.display()), "No such file");
    refused(&format!("-V {} -i lo", a.display()), "cannot be used with");
    refused("-r - -r -", "only once");
    let output = dump(&format!("-r {} -r {}", a.display(), missing.display()));
    assert_eq!(output.status.code(), Some(1));
}

/// The bytes that a program prints for a file; `None`, after a note, if there is no such program.
fn unpacked(program: &str, file: &Path) -> Option<Vec<u8>> {
    let Ok(output) = Command::new(program).arg("-dc").arg(file).output() else {
        println!("skipped: no {program}");
        return None;
    };
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Some(output.stdout)
}

#[test]
fn files_are_compressed_while_they_are_written_and_read_back() {
    let (_folder, at) = folder();
    let (source, plain) = (at("in.pcap"), at("plain.pcap"));
    make(&source, 5000, 0, 400);
    let of = |file: &Path| format!("-r {} -w {}", source.display(), file.display());
    stdout(&dump(&of(&plain)));
    let expected = std::fs::read(&plain).unwrap();
    for (ending, program) in [("gz", "gzip"), ("zst", "zstd"), ("lz4", "lz4")] {
        let by_name = at(&format!("named.pcap.{ending}"));
        stdout(&dump(&of(&by_name)));
        let by_option = at(&format!("{program}.pcap"));
        stdout(&dump(&format!("{} --compress {program}", of(&by_option))));
        for file in [by_name, by_option] {
            let len = file.metadata().unwrap().len() as usize;
            assert!(len < expected.len() / 2, "{program}: {len} of {}", expected.len());
            assert_eq!(frames_of(&file), 5000, "{program}");
            assert!(unpacked(program, &file).is_none_or(|bytes| bytes == expected), "{program}");
        }
    }
    let named = at("plain.pcap.gz");
    stdout(&dump(&format!("{} --compress none", of(&named))));
    assert!(std::fs::read(&named).unwrap() == expected, "as requested, despite the name");
    // Standard output, and a file that is compressed and rotated.
    let mut command = Command::new(FYKE);
    let command = command.args(["dump", "--compress", "zstd", "-w", "-", "-r"]).arg(&source);
    let piped = command.output().unwrap();
    std::fs::File::create(at("piped")).unwrap().write_all(&piped.stdout).unwrap();
    assert_eq!(frames_of(&at("piped")), 5000);
    stdout(&dump(&format!("{} --compress gzip -C 1 -Z root", of(&at("turn")))));
    let frames: u64 = ["turn", "turn1", "turn2"].map(|name| frames_of(&at(name))).iter().sum();
    assert_eq!(frames, 5000, "a file holds a million bytes before compression");
}

#[test]
fn a_command_runs_for_each_complete_file() {
    let (_folder, at) = folder();
    let (source, out, script) = (at("in.pcap"), at("out"), at("script"));
    make(&source, 8000, 0, 400);
    let log = at("log");
    // It notes the user, the arguments and the length of the file, and removes the file.
    let text = format!(
        "#!/bin/sh\necho \"$(id -u) $# $1 $(wc -c <\"$1\")\" >>{}\nrm \"$1\"\n",
        log.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::write(&log, "").unwrap();
    for (path, mode) in [(out.parent().unwrap(), 0o777), (&script, 0o755), (&log, 0o666)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let words = format!("-r {} -w {} -C 1", source.display(), out.display());
    stdout(&dump(&format!("{words} -z {}", script.display())));
    let start = Instant::now();
    let lines = loop {
        let lines: Vec<String> =
            std::fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect();
        if lines.len() >= 3 || start.elapsed() > Duration::from_secs(20) {
            break lines;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let names: Vec<&str> = lines.iter().filter_map(|line| line.split(' ').nth(2)).collect();
    let expected = ["out", "out1", "out2"].map(|name| at(name).display().to_string());
    assert!(lines.len() == 3 && expected.iter().all(|one| names.contains(&&**one)), "{lines:?}");
    assert!(at("out3").exists(), "the last file is not passed on");
    let last = std::fs::metadata(at("out3")).unwrap();
    for line in &lines {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[0], last.uid().to_string(), "it has the rights of the new user: {line}");
        assert_eq!(words[1], "1", "{line}");
        assert!(words[3].parse::<u64>().unwrap() > 1_000_000, "the file is complete: {line}");
    }
    refused(&format!("{words} -z /no/such/program"), "there is no such program");
    refused(&format!("{words} -z {}", "gzip\u{a0}-9"), "put options into a script");
    refused(&format!("-r {} -w {} -z gzip", source.display(), out.display()), "-C or -G");
    let graph = format!(
        "(pcapin, {}) > (tofile, {}, size=1, command=gzip)",
        source.display(),
        out.display()
    );
    let output = Command::new(FYKE).args(["run", "--no-control", &graph]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("fyke dump -z"), "{said}");
}
