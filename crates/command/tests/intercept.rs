//! `fyke intercept`: users of RADIUS, DHCP and PPPoE from files and live, warrants, the log, and what is not written.

use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use md5::{Digest, Md5};
use std::path::Path;
use std::process::{Command, Output};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");
const NAS: [u8; 4] = [10, 9, 0, 1];
const SERVER: [u8; 4] = [10, 9, 0, 2];
const SECRET: &str = "shared";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn attribute(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind, value.len() as u8 + 2], value].concat()
}

/// An accounting request: status 1 begins, 2 ends, 3 continues a session.
fn accounting(secret: &str, status: u8, user: &str, session: &str, host: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![4, 1, 0, 0];
    packet.extend([0; 16]);
    for (kind, value) in [
        (40, &[0, 0, 0, status][..]),
        (1, user.as_bytes()),
        (4, &NAS[..]),
        (44, session.as_bytes()),
        (8, &host[..]),
    ] {
        packet.extend(attribute(kind, value));
    }
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    let hash = Md5::digest([&packet[..], secret.as_bytes()].concat());
    packet[4..20].copy_from_slice(&hash);
    packet
}

fn radius(status: u8, user: &str, session: &str, host: [u8; 4]) -> Vec<u8> {
    let payload = accounting(SECRET, status, user, session, host);
    Packet::ethernet().ipv4(NAS, SERVER).udp(40_000, 1_813).payload(&payload).build()
}

/// A frame of a host, with a text that tells it from others.
fn data(host: [u8; 4], payload: &str) -> Vec<u8> {
    let packet = Packet::ethernet().ipv4(host, [192, 0, 2, 99]).udp(1_000, 2_000);
    packet.payload(payload.as_bytes()).build()
}

fn host(last: u8) -> [u8; 4] {
    [192, 0, 2, last]
}

fn fyke(folder: &Path, args: &[&str]) -> Output {
    Command::new(FYKE).args(args).current_dir(folder).output().unwrap()
}

fn good(output: Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Warrants with ids, kinds and users; frames of a test are from 1970, and the last warrant is over then if `over`.
fn warrants(folder: &Path, list: &[(&str, &str, &str)], over: bool) {
    let mut all = String::new();
    for (at, (id, kind, user)) in list.iter().enumerate() {
        let key = good(fyke(folder, &["intercept", "key", &format!("{id}.key")]));
        let is_over = over && at + 1 == list.len();
        let until = if is_over { "1970-01-01T00:00:00.5Z" } else { "2500-01-01T00:00:00Z" };
        all += &format!(
            "[[warrant]]\nid = \"{id}\"\nkind = \"{kind}\"\nuser = \"{user}\"\n\
             from = 1970-01-01T00:00:00Z\nuntil = {until}\nkey = \"{}\"\n",
            key.trim()
        );
    }
    std::fs::write(folder.join("w.toml"), all).unwrap();
    std::fs::write(folder.join("secrets"), format!("* {SECRET}\n")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(folder.join("secrets"), mode).unwrap();
}

fn intercept(folder: &Path, frames: &[Vec<u8>]) -> String {
    std::fs::write(folder.join("in.pcap"), pcap::file(1, frames)).unwrap();
    let args = ["intercept", "-Z", "root", "-r", "in.pcap", "--warrants", "w.toml"];
    let output = fyke(folder, &[&args[..], &["--secret-file", "secrets", "-w", "out"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stderr)
}

/// Frames of a summary: seen, accepted, and all others.
fn sum(said: &str) -> (usize, usize, usize) {
    let line = said.lines().find(|line| line.contains(" seen ")).expect("a sum");
    let line = line.split(';').next().unwrap();
    let counts: Vec<usize> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    (counts[0], counts[1], counts[2..].iter().sum())
}

/// The payloads in the file of a warrant, which has to be a whole capture file.
fn captured(folder: &Path, id: &str) -> Vec<String> {
    let plain = folder.join(format!("{id}.pcapng"));
    let file = format!("out/{id}-1.pcapng.age");
    let key = format!("{id}.key");
    good(fyke(
        folder,
        &["intercept", "decrypt", "--key", &key, &file, "-w", plain.to_str().unwrap()],
    ));
    let lines = good(fyke(folder, &["dump", "-r", plain.to_str().unwrap(), "-A", "-n"]));
    std::fs::remove_file(plain).unwrap();
    let words = lines.match_indices("data-").map(|(at, _)| {
        let word =
            lines[at..].split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
        word.take(1).collect()
    });
    words.collect()
}

#[test]
fn users_swap_addresses_and_each_warrant_gets_the_frames_of_its_user_only() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    warrants(folder, &[("A", "user", "alice"), ("B", "user", "bob")], false);
    let said = intercept(
        folder,
        &[
            data(host(1), "data-before"),
            radius(1, "alice", "a", host(1)),
            data(host(1), "data-a1"),
            data(host(2), "data-nobody"),
            radius(1, "bob", "b", host(2)),
            data(host(2), "data-b1"),
            radius(3, "alice", "a", host(2)),
            data(host(2), "data-a2"),
            data(host(1), "data-free"),
            radius(3, "bob", "b", host(1)),
            data(host(1), "data-b2"),
            radius(1, "carol", "c", host(1)),
            data(host(1), "data-carol"),
            radius(2, "alice", "a", host(2)),
            data(host(2), "data-after"),
            radius(1, "alice", "a", host(2)),
            data(host(2), "data-late"),
        ],
    );
    assert_eq!(captured(folder, "A"), ["data-a1", "data-a2"], "{said}");
    assert_eq!(captured(folder, "B"), ["data-b1", "data-b2"], "{said}");
    assert!(said.contains("4 frames written"), "{said}");
    assert!(said.contains("1 messages about sessions that had ended"), "{said}");
    // Nothing else is in the folder, and nothing in clear text.
    let mut names: Vec<_> = std::fs::read_dir(folder.join("out"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["A-1.pcapng.age", "B-1.pcapng.age", "log.jsonl"]);
    for name in names {
        let bytes = std::fs::read(folder.join("out").join(&name)).unwrap();
        assert!(!bytes.windows(5).any(|part| part == b"data-"), "{name}");
    }
    assert!(good(fyke(folder, &["intercept", "verify", "out/log.jsonl"])).contains("2 files"));
    let mode = |name: &str| {
        std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(folder.join(name)).unwrap().permissions(),
        )
    };
    assert_eq!((mode("out") & 0o777, mode("A.key") & 0o777), (0o700, 0o600));
    // The key of one warrant does not decrypt the file of another one.
    let other = ["intercept", "decrypt", "--key", "B.key", "out/A-1.pcapng.age"];
    assert_eq!(fyke(folder, &other).status.code(), Some(1));
    let decrypt = || {
        let file = std::fs::File::open(folder.join("out/A-1.pcapng.age")).unwrap();
        let args = ["intercept", "decrypt", "--key", "A.key", "-"];
        Command::new(FYKE).args(args).current_dir(folder).stdin(file).output().unwrap()
    };
    let plain = decrypt().stdout;
    assert!(plain.windows(7).any(|part| part == b"data-a2"));
    // A key that others can read is refused.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(folder.join("A.key"), open).unwrap();
    let refused = decrypt();
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("chmod 600"), "{}", text(&refused.stderr));
}

/// The files may have 256 KiB each, so that the one of A cannot be written as a whole.
#[test]
fn frames_that_a_file_lacks_are_lost_and_the_error_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    warrants(folder, &[("A", "user", "alice"), ("B", "user", "bob")], false);
    let long = |from, to, word: &str, at: usize| {
        let payload = format!("data-{word}{at} ") + &"x".repeat(400 + at % 400);
        Packet::ethernet().ipv4(from, to).udp(1_000, 2_000).payload(payload.as_bytes()).build()
    };
    let mut frames = vec![radius(1, "alice", "a", host(1)), radius(1, "bob", "b", host(2))];
    for at in 0..400 {
        frames.push(long(host(1), host(99), "a", at));
        frames.push(long(host(1), host(2), "c", at));
        frames.push(data(host(2), &format!("data-b{at}")));
        frames.push(data(host(3), "data-none"));
    }
    std::fs::write(folder.join("in.pcap"), pcap::file(1, &frames)).unwrap();
    let script = "ulimit -f 256; trap '' XFSZ; exec \"$@\"";
    let output = Command::new("bash")
        .args(["-c", script, "-", FYKE, "intercept", "-Z", "root", "-r", "in.pcap"])
        .args(["--warrants", "w.toml", "--secret-file", "secrets", "-w", "out"])
        .current_dir(folder)
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("out/A-1.pcapng.age: File too large"), "{said}");
    let (seen, accepted, others) = sum(&said);
    // The capture ends with the failure.
    assert!(seen == accepted + others && seen < frames.len(), "{said}");
    let words = |id: &str, code| {
        let (plain, file) = (format!("{id}.pcapng"), format!("out/{id}-1.pcapng.age"));
        let key = format!("{id}.key");
        let args = ["intercept", "decrypt", "--key", &key, &file, "-w", &plain];
        assert_eq!(fyke(folder, &args).status.code(), Some(code), "{id}");
        // The last frame of A may be cut.
        let lines = text(&fyke(folder, &["dump", "-r", &plain, "-A", "-n"]).stdout);
        let count = |word: &str| lines.matches(&format!("data-{word}")).count();
        [count("a"), count("b"), count("c")]
    };
    let ([a, _, both], [_, b, _]) = (words("A", 1), words("B", 0));
    assert!(a > 100 && b > 100 && both > 100, "{a} {b} {both}");
    assert_eq!(accepted, a + b + both, "{said}");
    assert!(said.contains("frames are lost: a file was given them"), "{said}");
    let log = std::fs::read_to_string(folder.join("out/log.jsonl")).unwrap();
    assert!(log.contains("file failed") && log.contains("\"event\":\"end\""), "{log}");
    assert!(good(fyke(folder, &["intercept", "verify", "out/log.jsonl"])).contains("1 files"));
}

#[test]
fn a_wrong_authenticator_changes_nothing_and_an_expired_warrant_gets_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    warrants(folder, &[("A", "user", "alice"), ("B", "address", "192.0.2.7")], true);
    let forged = |status, session, host| {
        let payload = accounting("guess", status, "alice", session, host);
        Packet::ethernet().ipv4(NAS, SERVER).udp(40_000, 1_813).payload(&payload).build()
    };
    let said = intercept(
        folder,
        &[
            forged(1, "a", host(1)),
            data(host(1), "data-forged"),
            radius(1, "alice", "a", host(2)),
            forged(2, "a", host(2)),
            data(host(2), "data-a1"),
            data(host(7), "data-over"),
        ],
    );
    assert_eq!(captured(folder, "A"), ["data-a1"], "{said}");
    assert_eq!(captured(folder, "B"), [""; 0], "{said}");
    assert!(said.contains("2 accounting requests with a wrong authenticator"), "{said}");
    let log = std::fs::read_to_string(folder.join("out/log.jsonl")).unwrap();
    assert!(log.contains("warrant ends"), "{log}");
}

/// An address is followed although no message arrives; frames are a second apart, from 1970 on.
#[test]
fn an_address_that_a_warrant_names_is_followed_without_messages() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    warrants(folder, &[("A", "address", "192.0.2.1")], false);
    let file = std::fs::read_to_string(folder.join("w.toml")).unwrap();
    let later = file.replace("from = 1970-01-01T00:00:00Z", "from = 1970-01-01T00:00:02Z");
    let later = later.replace("until = 2500-01-01T00:00:00Z", "until = 1970-01-01T00:00:04Z");
    std::fs::write(folder.join("w.toml"), later).unwrap();
    let frames: Vec<_> = (0..6).map(|at| data(host(1), &format!("data-{at}"))).collect();
    let said = intercept(folder, &frames);
    assert_eq!(captured(folder, "A"), ["data-2", "data-3"], "{said}");
    assert!(said.contains("6 seen = 2 accepted + 4 rejected + 0 lost"), "{said}");
}

#[test]
fn a_log_that_was_changed_is_found_and_not_continued() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    warrants(folder, &[("A", "user", "alice")], false);
    intercept(folder, &[radius(1, "alice", "a", host(1)), data(host(1), "data-a1")]);
    intercept(folder, &[data(host(1), "data-a1")]);
    let path = folder.join("out/log.jsonl");
    let log = std::fs::read_to_string(&path).unwrap();
    let good_log = good(fyke(folder, &["intercept", "verify", "out/log.jsonl"]));
    let last = good_log.lines().last().unwrap().rsplit(' ').next().unwrap().to_owned();
    let lines: Vec<&str> = log.lines().collect();
    let cut = lines[..lines.len() - 1].join("\n") + "\n";
    for (changed, extra) in [
        (log.replacen("192.0.2.1", "192.0.2.9", 1), None),
        (lines[1..].join("\n") + "\n", None),
        (cut, Some(last.as_str())),
    ] {
        std::fs::write(&path, changed).unwrap();
        let mut args = vec!["intercept", "verify", "out/log.jsonl"];
        args.extend(extra.into_iter().flat_map(|last| ["--last", last]));
        let output = fyke(folder, &args);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    }
    // The last line was changed.
    let changed = lines[lines.len() - 1].replace("\"frames_written\":0", "\"frames_written\":7");
    std::fs::write(&path, lines[..lines.len() - 1].join("\n") + "\n" + &changed + "\n").unwrap();
    let output = fyke(folder, &["intercept", "verify", "out/log.jsonl"]);
    assert!(text(&output.stderr).contains("its own hash"), "{}", text(&output.stderr));
    // The last line has no end.
    std::fs::write(&path, &log[..log.len() - 9]).unwrap();
    let output = fyke(folder, &["intercept", "verify", "out/log.jsonl"]);
    assert!(text(&output.stderr).contains("FILE.broken"), "{}", text(&output.stderr));
    intercept(folder, &[data(host(1), "data-a1")]);
    let again = good(fyke(folder, &["intercept", "verify", "out/log.jsonl"]));
    assert!(again.contains("3 files are intact") && again.contains("--last"), "{again}");
    assert!(std::fs::read_to_string(folder.join("out/log.jsonl.broken")).unwrap().len() > 100);
    std::fs::write(&path, log.replacen("192.0.2.1", "192.0.2.9", 1)).unwrap();
    let args = ["intercept", "-r", "in.pcap", "--warrants", "w.toml", "-Z", "root", "-w", "out"];
    assert_eq!(fyke(folder, &args).status.code(), Some(1));
}

#[test]
fn dhcp_and_pppoe_name_users() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let list = [("D", "mac", "02:00:00:00:00:07"), ("P", "user", "alice")];
    warrants(folder, &list, false);
    let dhcp = |operation: u8, kind: u8, address: [u8; 4]| {
        let mut bytes = vec![operation, 1, 6, 0];
        bytes.resize(240, 0);
        bytes[if operation == 2 { 16 } else { 12 }..][..4].copy_from_slice(&address);
        bytes[28..34].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
        bytes[236..].copy_from_slice(&[0x63, 0x82, 0x53, 0x63]);
        bytes.extend([53, 1, kind, 51, 4, 0, 0, 14, 16, 255]);
        let ports = if operation == 2 { (67, 68) } else { (68, 67) };
        let ends = if operation == 2 { (SERVER, address) } else { (address, SERVER) };
        Packet::ethernet().ipv4(ends.0, ends.1).udp(ports.0, ports.1).payload(&bytes).build()
    };
    let (user, server) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let ppp = |up: bool, session: u16, protocol: u16, body: &[u8]| {
        let (source, destination) = if up { (user, server) } else { (server, user) };
        let mut bytes = [&destination[..], &source, &[0x88, 0x64, 0x11, 0]].concat();
        bytes.extend(session.to_be_bytes());
        bytes.extend((body.len() as u16 + 2).to_be_bytes());
        bytes.extend(protocol.to_be_bytes());
        bytes.extend(body);
        bytes
    };
    let inner = |payload: &str| data(host(50), payload)[14..].to_vec();
    let said = intercept(
        folder,
        &[
            data(host(7), "data-early"),
            dhcp(2, 5, host(7)),
            data(host(7), "data-d1"),
            dhcp(1, 7, host(7)),
            data(host(7), "data-released"),
            ppp(true, 5, 0xc023, b"\x01\x01\x00\x0f\x05alice\x04pass"),
            ppp(true, 5, 0x0021, &inner("data-unproved")),
            ppp(false, 5, 0xc023, b"\x02\x01\x00\x05\x00"),
            ppp(true, 5, 0x0021, &inner("data-p1")),
            ppp(true, 6, 0x0021, &inner("data-other")),
            ppp(true, 5, 0xc021, b"\x05\x02\x00\x04"),
            ppp(true, 5, 0x0021, &inner("data-ended")),
        ],
    );
    assert_eq!(captured(folder, "D"), ["data-d1"], "{said}");
    assert_eq!(captured(folder, "P"), ["data-p1"], "{said}");
}

/// Sends the frames of each file in turn into one end of a pair, while the other end is captured.
const SCRIPT: &str = r#"
    set -eu
    veth
    "$FYKE" intercept -Z root -i far --warrants w.toml --secret-file secrets -w out --stats 2> log &
    id=$!
    wait_for "$FYKE" ctl --pid $id show
    for number in $(seq 0 $((PARTS - 1))); do
        "$FYKE" run --no-control "(pcapin,part$number.pcap) > (tointerface,near)" 2>> sent.log
        sleep 0.3
    done
    "$FYKE" ctl --pid $id show --full > show
    for edit in "set ip" "add udp" "del 1" "pause" "frames" "undo"; do
        if "$FYKE" ctl --pid $id $edit > edit 2>&1; then echo "done: $edit" >> refused; fi
        cat edit >> refused
    done
    kill -INT $id
    wait
"#;

#[test]
fn live_the_capture_follows_users_and_ends_with_the_warrant() {
    let folder = tempfile::tempdir().unwrap();
    let list = [
        ("A", "user", "alice"),
        ("B", "user", "bob"),
        ("F", "address", "192.0.2.9"),
        ("O", "address", "192.0.2.1"),
    ];
    warrants(folder.path(), &list, true);
    let mut parts = Vec::new();
    for round in 0..10u8 {
        // They exchange their addresses each time.
        let (a, b) = (host(1 + round % 2), host(2 - round % 2));
        parts.push(vec![radius(3, "alice", "a", a), radius(3, "bob", "b", b)]);
        let of = |user: &str, at| data(at, &format!("data-{user}{round}"));
        parts.push(vec![of("a", a), of("x", host(9)), of("b", b)]);
    }
    for (number, part) in parts.iter().enumerate() {
        let file = folder.path().join(format!("part{number}.pcap"));
        std::fs::write(file, pcap::file(1, part)).unwrap();
    }
    let script = Script::new(FYKE, folder.path()).env("PARTS", parts.len().to_string());
    let Some(output) = script.run(SCRIPT) else { return };
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let said = text(&output.stderr) + &read("log") + &read("sent.log");
    assert!(output.status.success(), "{said}");
    for (id, user) in [("A", "a"), ("B", "b"), ("F", "x")] {
        let wanted: Vec<_> = (0..10).map(|round| format!("data-{user}{round}")).collect();
        assert_eq!(captured(folder.path(), id), wanted, "{said}");
    }
    assert!(read("show").contains("warrant A: 192.0.2.2"), "{}", read("show"));
    // Clients edit nothing, and see no frame.
    let refused = read("refused");
    assert!(refused.contains("follows its warrants only"), "{refused}");
    assert!(!refused.contains("done:") && !refused.contains("data-"), "{refused}");
    let (seen, accepted, others) = sum(&read("log"));
    assert_eq!(seen, accepted + others, "{said}");
    // The third warrant was over before the start, so it has no file.
    assert!(read("out/log.jsonl").contains("warrant is over"), "{said}");
    assert!(!folder.path().join("out/O-1.pcapng.age").exists());
    good(fyke(folder.path(), &["intercept", "verify", "out/log.jsonl"]));
}

/// The requests of these tests are what tshark takes for valid, and the forged ones are not.
#[test]
fn requests_are_those_that_tshark_reads() {
    if Command::new("tshark").arg("--version").output().is_err() {
        return println!("skipped: no tshark");
    }
    let folder = tempfile::tempdir().unwrap();
    let forged = accounting("guess", 1, "mallory", "m", host(9));
    let forged = Packet::ethernet().ipv4(NAS, SERVER).udp(40_000, 1_813).payload(&forged).build();
    let first = data(host(1), "data-first");
    let frames = [first, radius(1, "alice", "a", host(1)), radius(2, "bob", "b", host(2)), forged];
    let file = folder.path().join("in.pcap");
    std::fs::write(&file, pcap::file(1, &frames)).unwrap();
    let mut tshark = Command::new("tshark");
    // In the second reading each request is checked.
    tshark.arg("-2").arg("-r").arg(&file).args(["-o", &format!("radius.shared_secret:{SECRET}")]);
    tshark.args([
        "-o",
        "radius.validate_authenticator:TRUE",
        "-Y",
        "radius",
        "-T",
        "fields",
        "-E",
        "separator=|",
    ]);
    for field in [
        "radius.Acct_Status_Type",
        "radius.User_Name",
        "radius.Framed-IP-Address",
        "radius.authenticator.valid",
    ] {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().unwrap();
    let lines = text(&output.stdout);
    let lines: Vec<&str> = lines.lines().collect();
    let [first, second, third] = lines[..] else { panic!("{}", text(&output.stderr)) };
    assert!(first.starts_with("1|alice|192.0.2.1|"), "{first}");
    assert!(second.starts_with("2|bob|192.0.2.2|"), "{second}");
    let is_valid = |line: &str| line.ends_with("|1") || line.ends_with("|True");
    assert!(is_valid(first) && is_valid(second) && !is_valid(third), "{lines:?}");
}
