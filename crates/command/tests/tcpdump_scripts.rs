//! A link to fyke that is called `tcpdump` is tcpdump: scripts as its users write them run with the real one and with
//! the link, and have the same output, files (with owner and mode) and exit status.

use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap::{self, Layout, Record};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

/// Scripts over files.
const OF_FILES: &[&str] = &[
    "tcpdump -nr in.pcap",
    "tcpdump -nn -tttt -r in.pcap 'tcp[tcpflags] & (tcp-syn|tcp-fin) != 0'",
    "tcpdump -r in.pcap -nn -q -c 5; tcpdump -c5 -qnnr in.pcap",
    "tcpdump -enr in.pcap vlan or arp",
    "tcpdump -nn -r in.pcap -w http.pcap 'tcp port 80' && tcpdump -nr http.pcap",
    "tcpdump -r in.pcap -w - udp port 53 2>/dev/null | tcpdump -nr -",
    "tcpdump -nr in.pcap 2>/dev/null | wc -l",
    "tcpdump -ttnr in.pcap ip | awk '{print $3}' | cut -d. -f1-4 | sort | uniq -c | sort -rn | head",
    "for f in *.pcap; do echo \"$f $(tcpdump -nr \"$f\" 2>/dev/null | wc -l)\"; done",
    "tcpdump -r in.pcap --count; tcpdump --count -r in.pcap -c 1; tcpdump -nr in.pcap --cou icmp",
    "tcpdump -nr in.pcap -c3 -X; tcpdump -xxnr in.pcap -c 2",
    "tcpdump -A -s0 -nr in.pcap 'tcp port 80 and (((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0)'",
    "cat in.pcap | tcpdump -nr - host 10.0.0.1",
    "if tcpdump -nr in.pcap -c1 port 4444 2>/dev/null | grep -q .; then echo found; else echo none; fi",
    "tcpdump -nr in.pcap 'ip6 or arp' -c 2 -tttt; tcpdump -nr in.pcap -- icmp",
    "tcpdump -r missing.pcap; echo $?; tcpdump -r script; echo $?; tcpdump -nr in.pcap 'port nosuch'; echo $?",
    "tcpdump -c 0; echo $?; tcpdump -k; echo $?; tcpdump --foo; echo $?; tcpdump -s -1; echo $?; tcpdump \
     -w; echo $?",
    "tcpdump -nr big.pcap -Z root -w part -C 1; ls",
    "tcpdump -nr big.pcap -Z root -w ring -C 1 -W 2; ls; tcpdump -nr ring0 -c 1",
    "tcpdump -d ip; tcpdump -dd arp; tcpdump -ddd ip; tcpdump -d -s 96 -y RAW; tcpdump -ddd -r raw.pcap",
    "printf 'tcp\\nand port 80 # the web\\n' > filter; tcpdump -F filter -nr in.pcap udp",
    "tcpdump -ttt -nr in.pcap; tcpdump -tttttnr in.pcap; tcpdump -tnr in.pcap -c 1",
    "tcpdump -n -r in.pcap -# -v icmp",
    "tcpdump -r in.pcap -nn 2>&1 >/dev/null | head -1",
    "gzip -c in.pcap | zcat | tcpdump -nr -",
    "tcpdump --nano -ttnr nano.pcap; tcpdump -ttnr nano.pcap; tcpdump -ttnr in.pcap \
     --time-stamp-precision=nano -c 1",
    "tcpdump -r nano.pcap -w micro.pcap; tcpdump -r nano.pcap --nano -w same.pcap; cmp nano.pcap same.pcap",
    "umask 027; tcpdump -r in.pcap -w out.pcapng; tcpdump -r in.pcap -w none.cap port 4444; tcpdump -nr \
     none.cap; echo $?",
    "head -c 300 in.pcap > cut.pcap; tcpdump -nr cut.pcap; echo $?; tcpdump -r cut.pcap -w whole.pcap; echo $?",
    "tcpdump -nr missing.pcap -r in.pcap -i lo -Q in -p -B 100 -j host -c 1; echo $?",
    "tcpdump -SnNKOubUlr in.pcap -c 4 tcp; tcpdump -m mib -nr in.pcap -c 1; tcpdump -fnr in.pcap; echo $?",
    "tcpdump -nr in.pcap host localhost or 10.0.0.3; tcpdump -nr in.pcap host nosuch.invalid; echo $?; \
     tcpdump -ddd -y RAW src localhost",
    "POSIXLY_CORRECT=1 tcpdump -nr in.pcap tcp -c 1; echo $?",
    "set -- -nn -c 2; tcpdump \"$@\" -r in.pcap 'host 10.0.0.1 and (port 80 or port 53)'",
];

/// Scripts over the loopback interface; `send N` sends N datagrams to port 7777, `listens FILE` waits until the capture
/// that writes its messages to FILE has started.
const OF_CAPTURES: &[&str] = &[
    "tcpdump -i lo -w live.pcap -c 4 udp port 7777 2> log & listens log; send 4; wait $!; echo $?
     tcpdump -nr live.pcap 2>/dev/null | cut -d' ' -f 2- | sed 's/[0-9]* > /PORT > /'
     grep -o '4 packets captured' log; rm live.pcap log",
    "tcpdump -i lo -l -nn -c 3 udp port 7777 2> log | while read -r time ip rest; do echo \"$ip\"; done &
     listens log; send 3; wait $!; grep -c -e captured -e received -e dropped log; rm log",
    "tcpdump -ni lo -w x.pcap 2> log & pid=$!; listens log; kill -TERM $pid; wait $pid; echo $?
     tail -3 log; head -1 log; rm log",
    "tcpdump -ni lo udp port 7777 > out 2> log & pid=$!; listens log; kill $pid; wait $pid; echo $?; cat \
     out; words log; rm log",
    "tcpdump -D | grep -c '^[0-9]*\\.lo \\[Up, Running, Loopback\\]'; tcpdump -D | grep -o 'any (.*'",
    "tcpdump -L -i lo 2>&1; tcpdump -J -i lo 2>&1; tcpdump -i nosuch; echo $?; tcpdump -i lo -I; echo $?",
    "tcpdump -i lo -c 1 udp port 7777 > out 2> log & listens log; send 1; wait $!; echo $?; words log; \
     wc -l < out; rm out log",
    "tcpdump -pni any -Q in -tc 2 udp port 7777 > out 2> log & listens log; send 2; wait $!; sed \
     's/[0-9]* > /PORT > /' out; words log; rm out log",
    "tcpdump -ni lo -G 1 -W 1 -w 'cap-%y.pcap' 2> log & listens log; sleep 1.2; send 1; wait $!; echo \
     $?; ls; rm log",
    "tcpdump -i lo --print -U -w both.pcap -ntc 1 udp port 7777 > out 2> log & listens log; send 1; wait $!
     sed 's/[0-9]* > /PORT > /' out; words log; stat -c '%a %U %s' both.pcap; rm out log both.pcap",
    "tcpdump -ni lo -v -w x.pcap -c 1 udp port 7777 2> log & listens log; sleep 1.5; send 1; wait $!; \
     grep -c 'Got 0' log; rm log",
    "tcpdump -ni lo -s 42 -tc 1 udp port 7777 > out 2> log & listens log; send 1; wait $!; cut -d' ' -f \
     3- out; words log; rm out log",
];

/// Functions of the scripts, and the files that each run starts with.
const FUNCTIONS: &str = r#"
    ip link set lo up
    send() { for number in $(seq "$1"); do echo x > /dev/udp/127.0.0.1/7777; done 2> /dev/null; }
    # On the loopback interface, tcpdump counts frames as received twice: as sent and as received.
    words() { grep -v 'received by filter' "$1"; }
    listens() { wait_for grep -q 'listening on' "$1"; sleep 0.3; }
    "$REAL" --version > /dev/null || exit 99
"#;

fn write_files(folder: &Path) {
    let ether = || Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let back = || Packet::ethernet().ipv4([10, 0, 0, 2], [10, 0, 0, 1]);
    let frames = [
        ether().tcp(40000, 80).flags(2).seq_ack(1000, 0).build(),
        back().tcp(80, 40000).flags(0x12).seq_ack(5000, 1001).build(),
        ether().tcp(40000, 80).flags(0x10).seq_ack(1001, 5001).build(),
        ether().tcp(40000, 80).flags(0x18).seq_ack(1001, 5001).payload(b"data").build(),
        back().tcp(80, 40000).flags(0x11).seq_ack(5001, 1005).build(),
        Packet::ethernet()
            .ipv4([10, 0, 0, 3], [10, 0, 0, 4])
            .udp(2000, 5001)
            .payload(&[7; 20])
            .build(),
        Packet::ethernet()
            .vlan(7)
            .ipv4([10, 0, 0, 5], [10, 0, 0, 6])
            .udp(2000, 5001)
            .payload(&[7; 20])
            .build(),
        Packet::ethernet().ipv6([0x20; 16], [0x21; 16]).udp(2000, 5001).payload(&[1; 8]).build(),
        ether().icmp(8, 0, 1).payload(&[0; 16]).build(),
    ];
    let record = |(number, data): (usize, &Vec<u8>)| Record {
        timestamp_ns: 1_700_000_000_000_000_000 + number as u64 * 1_500_123_456,
        wire_len: data.len() as u32,
        data: data.clone(),
    };
    let records: Vec<_> = frames.iter().enumerate().map(record).collect();
    let layout = |nanoseconds| Layout { nanoseconds, ..Layout::default() };
    let write = |name: &str, contents: &[u8]| fs::write(folder.join(name), contents).unwrap();
    write("in.pcap", &pcap::encode(1, &records, layout(false)));
    write("nano.pcap", &pcap::encode(1, &records, layout(true)));
    let raw = Packet::raw().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(2000, 5001).build();
    write("raw.pcap", &pcap::file(101, &[raw]));
    let long = ether().udp(2000, 5001).payload(&[7; 1000]).build();
    write("big.pcap", &pcap::file(1, &vec![long; 3500]));
}

/// Output, and the files with mode, owner and contents.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    out: String,
    status: Option<i32>,
    files: BTreeMap<String, (u32, u32, Vec<u8>)>,
}

/// Runs a script in a folder of its own with one of the two programs; `None` if the system does not permit it.
fn run(script: &str, program: &Path, in_namespace: bool) -> Option<(Seen, String)> {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("work");
    fs::create_dir(&place).unwrap();
    for path in [folder.path(), &place] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    if !in_namespace {
        write_files(&place);
        fs::write(place.join("script"), script).unwrap();
    }
    let own = format!("tcpdump() {{ \"{}\" \"$@\"; }}\nTZ=UTC; export TZ\n", program.display());
    let output = match in_namespace {
        true => {
            let real = "/usr/bin/tcpdump";
            let all = Script::new(FYKE, &place).as_root().env("REAL", real);
            let all = all.env("FYKE_RUNTIME_DIR", folder.path().join("run"));
            all.run(&format!("{FUNCTIONS}{own}{script}"))?
        }
        false => Command::new("bash")
            .args(["-c", &format!("{own}{script}")])
            .current_dir(&place)
            .env("FYKE_RUNTIME_DIR", folder.path().join("run"))
            .output()
            .unwrap(),
    };
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(&place).unwrap().flatten() {
        let about = entry.metadata().unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        let contents = fs::read(entry.path()).unwrap();
        // Times and ports of a capture differ.
        let contents = if in_namespace { Vec::new() } else { contents };
        files.insert(name, (about.mode() & 0o7777, about.uid(), contents));
    }
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Some((Seen { out, status: output.status.code(), files }, said))
}

/// Compares the link with the real program.
fn compare(scripts: &[&str], in_namespace: bool) {
    let found = std::env::var_os("PATH")
        .into_iter()
        .flat_map(|all| std::env::split_paths(&all).collect::<Vec<_>>());
    let Some(real) = found.map(|folder| folder.join("tcpdump")).find(|path| path.is_file()) else {
        return println!("skipped: no tcpdump to compare with");
    };
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let link = folder.path().join("tcpdump");
    std::os::unix::fs::symlink(FYKE, &link).unwrap();
    let mut differ = String::new();
    for script in scripts {
        let Some((expected, its_words)) = run(script, &real, in_namespace) else { return };
        assert_ne!(expected.status, Some(99), "{its_words}");
        let Some((seen, said)) = run(script, &link, in_namespace) else { return };
        let names = |seen: &Seen| {
            let one = |(name, (mode, owner, contents)): (&String, &(u32, u32, Vec<u8>))| {
                format!("{name} {mode:o} {owner} {} bytes; ", contents.len())
            };
            seen.files.iter().map(one).collect::<String>()
        };
        if seen != expected {
            differ += &format!(
                "== {script}\n-- tcpdump {:?}\n{}{}\n{its_words}\n-- link {:?}\n{}{}\n{said}\n",
                expected.status,
                expected.out,
                names(&expected),
                seen.status,
                seen.out,
                names(&seen)
            );
        }
    }
    assert!(differ.is_empty(), "{differ}");
}

#[test]
fn scripts_over_files() {
    assert!(OF_FILES.len() >= 30);
    compare(OF_FILES, false);
}

#[test]
fn scripts_over_captures() {
    compare(OF_CAPTURES, true);
}
