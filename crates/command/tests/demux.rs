//! `fyke demux` end to end: endpoints get the frames that `fyke dump` accepts, counts add up, and a refused command
//! changes no file.

use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use std::path::Path;
use std::process::{Command, Output};

const FRAMES: usize = 900;

/// A capture of datagrams to ports 50 to 59, ninety of each.
fn capture(folder: &Path) {
    let packet = |number: usize| {
        let port = 50 + number as u16 % 10;
        Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, port).payload(&[7; 30]).build()
    };
    let frames: Vec<Vec<u8>> = (0..FRAMES).map(packet).collect();
    std::fs::write(folder.join("in.pcap"), pcap::file(1, &frames)).unwrap();
}

fn fyke(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fyke"));
    command.current_dir(folder).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn endpoints_get_what_dump_accepts_and_counts_add_up() {
    let folder = tempfile::tempdir().unwrap();
    capture(folder.path());
    for scoped in [None, Some("--scoped")] {
        let mut args = vec!["demux", "-r", "in.pcap"];
        args.extend(scoped);
        // The last two share an endpoint, which gets a frame once.
        args.extend([
            "udp port 53 => one.pcap",
            "port 54 => two.pcap",
            "port (53 or 54) => two.pcap",
        ]);
        let counts = "90\tudp port 53\n90\tport 54\n180\tport (53 or 54)\n720\treject\n";
        assert_eq!(stdout(&fyke(folder.path(), &args)), counts, "{scoped:?}");
        for (file, text) in [("one.pcap", "udp port 53"), ("two.pcap", "port 53 or port 54")] {
            stdout(&fyke(folder.path(), &["dump", "-r", "in.pcap", "-w", "same.pcap", text]));
            let [got, same] = [file, "same.pcap"].map(|one| std::fs::read(folder.path().join(one)));
            assert_eq!(got.unwrap(), same.unwrap(), "{scoped:?} {file}");
        }
    }
}

#[test]
fn a_limit_is_met_exactly() {
    let folder = tempfile::tempdir().unwrap();
    capture(folder.path());
    for scoped in [None, Some("--scoped")] {
        let mut args = vec!["demux", "-r", "in.pcap", "-c", "301"];
        args.extend(scoped);
        args.push("port 50 => count");
        let counts = stdout(&fyke(folder.path(), &args));
        assert_eq!(counts, "31\tport 50\n270\treject\n", "{scoped:?}");
    }
}

#[test]
fn a_mistake_is_shown_and_no_file_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    capture(folder.path());
    let kept = folder.path().join("kept.pcap");
    std::fs::write(&kept, "kept").unwrap();
    for (wrong, says) in [
        ("tcp and => other.pcap", "expected"),
        ("tcp > other.pcap", "'EXPR => ENDPOINT'"),
        ("tcp =>", "missing"),
    ] {
        for scoped in [None, Some("--scoped")] {
            let mut args = vec!["demux", "-r", "in.pcap"];
            args.extend(scoped);
            args.extend(["udp => kept.pcap", wrong]);
            let refused = fyke(folder.path(), &args);
            assert_eq!(refused.status.code(), Some(2), "{wrong}");
            assert!(String::from_utf8_lossy(&refused.stderr).contains(says), "{wrong}");
            assert_eq!(std::fs::read(&kept).unwrap(), b"kept", "{wrong}");
        }
    }
}
