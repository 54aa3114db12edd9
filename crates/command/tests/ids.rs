//! `fyke ids` and `fyke snort2ruler` in typical use: alerts as text and JSON, reports, errors with their exit status.

use fyke_testkit::corpus::Corpus;
use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const RULES: &str = "\
alert http $HOME_NET any -> $EXTERNAL_NET any (msg:\"admin\"; flow:established,to_server; http.method; \
content:\"GET\"; http.uri; content:\"/admin\"; fast_pattern; startswith; classtype:web-application-attack; \
metadata:created_at 2024_01_01; sid:1; rev:3;)
drop http any any -> any any (msg:\"missing page\"; flow:to_client; \
http.stat_code; content:\"404\"; file.data; content:\"no such page\"; sid:2;)
alert tcp any any -> any 80 (msg:\"over two segments\"; content:\"Host: www\"; sid:3;)
# alert tcp any any -> any any (msg:\"a comment is no rule\"; sid:4;)
alert smb any any -> any any (msg:\"an application that is not read\"; sid:5;)
alert tcp any any -> any any (msg:\"an option that is not judged\"; lua:x.lua; sid:6;)
alert tcp any any -> any any (msg:\"cut off\"; sid:7;
";

fn fyke(args: &[&str]) -> Output {
    let command = env!("CARGO_BIN_EXE_fyke");
    Command::new(command).args(args).stdin(Stdio::null()).output().expect("fyke runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeeds(args: &[&str]) -> Output {
    let output = fyke(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
    output
}

/// A connection in a file: segments with direction, flags and payload, a millisecond apart.
fn write_connection(path: &Path, segments: &[(bool, u8, &str)]) {
    let mut file = 0xa1b2_c3d4u32.to_le_bytes().to_vec();
    file.extend([2, 0, 4, 0]);
    file.extend([0; 8]);
    file.extend(262_144u32.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    let mut next = [1000u32, 9000];
    for (number, (to_server, flags, payload)) in (0u32..).zip(segments) {
        let (client, server) = ([192, 168, 0, 1], [198, 51, 100, 7]);
        let packet = match to_server {
            true => {
                Packet::ethernet().ipv4(client, server).tcp(40_000, 80).seq_ack(next[0], next[1])
            }
            false => {
                Packet::ethernet().ipv4(server, client).tcp(80, 40_000).seq_ack(next[1], next[0])
            }
        };
        let frame = packet.flags(*flags).payload(payload.as_bytes()).build();
        next[usize::from(!to_server)] += payload.len() as u32 + u32::from(flags & 3 != 0);
        let length = u32::try_from(frame.len()).unwrap().to_le_bytes();
        file.extend(
            [1_700_000_000u32.to_le_bytes(), (number * 1000).to_le_bytes(), length, length]
                .concat(),
        );
        file.extend(frame);
    }
    std::fs::write(path, file).unwrap();
}

struct Folder(tempfile::TempDir);

impl Folder {
    /// A folder with the rules and a capture.
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        std::fs::write(folder.0.path().join("my.rules"), RULES).unwrap();
        write_connection(
            &folder.0.path().join("in.pcap"),
            &[
                (true, 2, ""),
                (false, 18, ""),
                (true, 16, ""),
                (true, 24, "GET /x/../%61dmin?a HTTP/1.1\r\nHost: w"),
                (true, 24, "ww.example.org\r\nUser-Agent: test\r\n\r\n"),
                (
                    false,
                    24,
                    "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nno such\r\n",
                ),
                (false, 24, "5\r\n page\r\n0\r\n\r\n"),
                (true, 17, ""),
                (false, 17, ""),
            ],
        );
        folder
    }

    fn name(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }
}

fn objects(text: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(text).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn alerts_are_lines_of_text_or_of_json() {
    let folder = Folder::new();
    let (rules, capture, eve) =
        (folder.name("my.rules"), folder.name("in.pcap"), folder.name("eve.json"));
    let output = succeeds(&["ids", "-r", &capture, "-S", &rules]);
    let lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(
        lines[1],
        "2023-11-14T22:13:20.004000+0000 [1:1:3] admin [class: Web Application Attack] [priority: 1] {TCP} \
         192.168.0.1:40000 -> 198.51.100.7:80"
    );
    let summary = text(&output.stderr);
    for part in [
        "3 of 6 rules are not judged",
        "9 frames: 9 judged, 0 fragments of 0 packets, 0 with a wrong checksum, 0 without IP",
        "1 flows (0 forgotten for lack of room), 2 messages",
        "3 matches = 3 alerts + 0 held back + 0 silent",
    ] {
        assert!(summary.contains(part), "{part}: {summary}");
    }
    assert!(
        text(&succeeds(&["ids", "-r", &capture, "-S", &rules, "--eve", &eve]).stdout).is_empty()
    );
    let written = objects(&std::fs::read(&eve).unwrap());
    let printed = objects(&succeeds(&["ids", "-r", &capture, "-S", &rules, "--eve", "-"]).stdout);
    assert_eq!(written, printed);
    let field = |pointer: &str| {
        written
            .iter()
            .map(|one| one.pointer(pointer).cloned().unwrap_or_default())
            .collect::<Vec<_>>()
    };
    assert_eq!(field("/alert/signature_id"), [3, 1, 2]);
    assert_eq!(field("/pcap_cnt"), [5, 5, 7]);
    assert_eq!(field("/src_ip"), ["192.168.0.1", "192.168.0.1", "198.51.100.7"]);
    assert_eq!(field("/dest_port"), [80, 80, 40_000]);
    assert_eq!(field("/http/url")[1], "/admin?a");
    assert_eq!(field("/http/status")[2], 404);
    assert_eq!(field("/verdict/action")[2], "would drop");
    assert_eq!(field("/alert/metadata/created_at/0")[1], "2024_01_01");
    assert!(field("/flow_id").windows(2).all(|pair| pair[0] == pair[1] && pair[0].is_u64()));
}

#[test]
fn no_alert_is_a_success_too_and_variables_change_the_ends() {
    let folder = Folder::new();
    let (rules, capture) = (folder.name("my.rules"), folder.name("in.pcap"));
    let sids = |more: &[&str]| {
        let args = [&["ids", "-r", &capture, "-S", &rules, "--eve", "-"], more].concat();
        let alerts = objects(&succeeds(&args).stdout);
        alerts.iter().map(|one| one["alert"]["signature_id"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(sids(&["--set", "HOME_NET=10.0.0.0/8"]), [3, 2]);
    assert_eq!(
        sids(&["--set", "HOME_NET=any", "--set", "EXTERNAL_NET=198.51.100.0/24"]),
        [3, 1, 2]
    );
    assert_eq!(sids(&["-c", "5"]), [3, 1]);
    assert_eq!(sids(&["-c", "3"]), [0; 0]);
}

#[test]
fn the_report_says_what_is_refused_and_why() {
    let folder = Folder::new();
    let (rules, judged, capture) =
        (folder.name("my.rules"), folder.name("judged.rules"), folder.name("in.pcap"));
    let output = succeeds(&["snort2ruler", &rules, "--report", "json", "-o", &judged]);
    let report = &objects(&output.stdout)[..];
    let [report] = report else { panic!("one line: {report:?}") };
    let refused = report["refused"].as_array().unwrap();
    assert_eq!((&report["rules"], &report["translated"], refused.len()), (&6.into(), &3.into(), 3));
    let of = |name: &str| refused.iter().map(|one| one[name].clone()).collect::<Vec<_>>();
    assert_eq!(
        (of("sid"), of("line")),
        (vec![5.into(), 6.into(), 7.into()], vec![5.into(), 6.into(), 7.into()])
    );
    for (reason, part) in
        of("reason").iter().zip(["smb", "lua: this option is not judged", "\")\" is missing"])
    {
        assert!(reason.as_str().unwrap().contains(part), "{reason}");
    }
    // What is written is read again, and gives the same alerts.
    let again = objects(&succeeds(&["snort2ruler", &judged, "--report", "json"]).stdout);
    assert_eq!((&again[0]["translated"], &again[0]["refused"]), (&3.into(), &Value::Array(vec![])));
    let alerts = |rules: &str| succeeds(&["ids", "-r", &capture, "-S", rules, "--eve", "-"]).stdout;
    assert_eq!(alerts(&rules), alerts(&judged));
    assert!(std::fs::read_to_string(&judged).unwrap().contains("# found by /admin in http.uri"));
    let lines = text(&succeeds(&["snort2ruler", &rules]).stdout);
    assert!(
        lines.ends_with("6 rules, 3 translated, 3 refused\n")
            && lines.starts_with("line 5, sid 5: "),
        "{lines}"
    );
}

#[test]
fn errors_have_their_exit_status() {
    let folder = Folder::new();
    let (rules, capture, other) =
        (folder.name("my.rules"), folder.name("in.pcap"), folder.name("other.rules"));
    std::fs::write(&other, "alert smb any any -> any any (sid:1;)\n").unwrap();
    for (status, part, args) in [
        (1, "cannot read /nothing", vec!["ids", "-r", &capture, "-S", "/nothing"]),
        (1, "/nothing", vec!["ids", "-r", "/nothing", "-S", &rules]),
        (
            1,
            "cannot create /nothing/eve",
            vec!["ids", "-r", &capture, "-S", &rules, "--eve", "/nothing/eve"],
        ),
        (2, "--rules", vec!["ids", "-r", &capture]),
        (2, "none of 1 rules", vec!["ids", "-r", &capture, "-S", &other]),
        (
            2,
            "--set HOME_NET=x: addresses x",
            vec!["ids", "-r", &capture, "-S", &rules, "--set", "HOME_NET=x"],
        ),
        (2, "expected NAME=VALUE", vec!["snort2ruler", &rules, "--set", "A"]),
        (2, "--workers", vec!["ids", "-i", "lo", "--workers", "2", "-S", &rules]),
        (2, "the rules are read from this file", vec!["snort2ruler", &rules, "-o", &rules]),
        (1, "cannot read /nothing", vec!["snort2ruler", "/nothing"]),
        (2, "none of 1 rules is translated", vec!["snort2ruler", &other]),
        (2, "nearest: --report json", vec!["snort2ruler", &rules, "--json"]),
    ] {
        let output = fyke(&args);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {message}");
        assert!(message.contains(part), "{args:?}: {message}");
    }
    assert_eq!(std::fs::read_to_string(&rules).unwrap(), RULES);
    // A full disk is a failure, and ends the run.
    let full = fyke(&["ids", "-r", &capture, "-S", &rules, "--eve", "/dev/full"]);
    assert_eq!(full.status.code(), Some(1), "{}", text(&full.stderr));
}

/// The class of graphs: the same lines, and the frames that lead to alerts.
#[test]
fn a_graph_judges_as_the_command_does() {
    let folder = Folder::new();
    let [rules, capture, ours, theirs, frames] =
        ["my.rules", "in.pcap", "ours.json", "theirs.json", "alerts.pcap"]
            .map(|name| folder.name(name));
    let kinds = "flow,dns,tls,http";
    succeeds(&[
        "ids",
        "-r",
        &capture,
        "-S",
        &rules,
        "--eve",
        &theirs,
        "--records",
        kinds,
        "--payload",
        "--set",
        "HOME_NET=192.168.0.0/16",
    ]);
    let set = "set='HOME_NET=192.168.0.0/16'";
    let graph = format!(
        "(pcapin, {capture}) > (ids, {rules}, eve={ours}, records='{kinds}', payload=y, {set}, \
         export=y) > (tofile, {frames})"
    );
    let output = succeeds(&["run", &graph]);
    assert_eq!(std::fs::read(&ours).unwrap(), std::fs::read(&theirs).unwrap());
    let shown = text(&output.stdout) + &text(&output.stderr);
    let counter = |name: &str| {
        let line = shown.lines().find(|line| line.split('\t').nth(1) == Some(name));
        line.and_then(|line| line.split('\t').nth(2)?.parse::<u64>().ok()).expect(&shown)
    };
    let names = ["rules", "refused_rules", "judged", "matches", "alerts", "not_ip"];
    assert_eq!(names.map(counter), [3, 3, 9, 3, 3, 0]);
    // Two alerts are about one frame.
    let numbers: std::collections::BTreeSet<u64> = objects(&std::fs::read(&ours).unwrap())
        .iter()
        .filter(|one| one["event_type"] == "alert")
        .map(|one| one["pcap_cnt"].as_u64().unwrap())
        .collect();
    let count = succeeds(&["dump", "-r", &frames, "--count"]);
    assert_eq!(text(&count.stdout).trim(), numbers.len().to_string());
    let unjudged = folder.name("other.rules");
    std::fs::write(&unjudged, "alert smb any any -> any any (sid:1;)\n").unwrap();
    for (node, status, part) in [
        ("(ids)".to_owned(), 2, "it needs `expression=…`"),
        (format!("(ids, {unjudged})"), 2, "none of 1 rules can be judged"),
        ("(ids, /nothing)".to_owned(), 2, "cannot read /nothing"),
        (format!("(ids, {rules}, records=flow)"), 2, "it needs `eve=…`"),
        (format!("(ids, {rules}, eve=-, records=smb)"), 2, "\"smb\" is none of"),
        (format!("(ids, {rules}, set=A)"), 2, "expected NAME=VALUE"),
        (format!("(ids, {rules}, checksums=never)"), 2, "never is not one of"),
        (format!("(ids, {rules}, eve=/nothing/eve)"), 1, "/nothing/eve"),
    ] {
        let output = fyke(&["run", &format!("(pcapin, {capture}) > {node}")]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{node}: {message}");
        assert!(message.contains(part), "{node}: {message}");
    }
    // A full disk: the node fails, and the run reports it.
    let full = fyke(&["run", &format!("(pcapin, {capture}) > (ids, {rules}, eve=/dev/full)")]);
    assert_eq!(full.status.code(), Some(1), "{}", text(&full.stderr));
}

#[test]
fn most_rules_of_public_sets_are_translated() {
    let corpus = Corpus::open();
    for (name, least) in
        [("rules/emerging-threats-open.rules", 0.85), ("rules/snort-community.rules", 0.90)]
    {
        let Some(path) = corpus.shared(name) else {
            println!("skipped: {name} is not there");
            continue;
        };
        let report = &objects(
            &succeeds(&["snort2ruler", path.to_str().unwrap(), "--report", "json"]).stdout,
        )[0];
        let count = |field: &str| report[field].as_u64().unwrap();
        let refused = report["refused"].as_array().unwrap().len() as u64;
        assert_eq!(count("rules"), count("translated") + refused);
        let share = count("translated") as f64 / count("rules") as f64;
        println!("{name}: {share:.3} translated");
        assert!(share >= least, "{name}: {share:.3}");
    }
}

/// Judges packets on the loopback interface while rules are added and removed.
const LIVE: &str = r#"
    set -eu
    ip link set lo up
    udp() { echo "$2" > /dev/udp/127.0.0.1/$1; }
    alerts() { test "$(grep -cE "\"signature_id\":$1[,}]" eve.json)" = "$2"; }
    "$FYKE" ids -i lo -S first.rules --eve eve.json 2> ids.log &
    pid=$!
    wait_for "$FYKE" ctl show > /dev/null 2>&1
    udp 5001 one
    wait_for alerts 1 1
    "$FYKE" ctl add 'alert udp any any -> any 5002 (msg:"added"; content:"two"; sid:2;)' > added
    udp 5002 "a two"
    wait_for alerts 2 1
    "$FYKE" ctl del 1 > removed
    udp 5001 one
    udp 5002 two
    wait_for alerts 2 2
    if "$FYKE" ctl add 'alert udp any any -> any any (lua:x; sid:3;)' 2> refused; then exit 3; fi
    if "$FYKE" ctl del 77 2> missing; then exit 4; fi
    "$FYKE" ctl show > shown
    echo '# a comment' > next.rules
    echo 'alert udp any any -> any any (content:"a #three"; sid:4;)' >> next.rules
    echo 'alert smb any any -> any any (sid:5;)' >> next.rules
    "$FYKE" ctl set -F next.rules > replaced 2>&1
    udp 5002 "two a #three"
    wait_for alerts 4 1
    kill -INT $pid
    wait $pid
    alerts 1 1
    alerts 2 2
"#;

#[test]
fn a_prefilter_is_an_expression_for_dump() {
    let folder = Folder::new();
    let (rules, capture, filter) =
        (folder.name("my.rules"), folder.name("in.pcap"), folder.name("my.filter"));
    let cut = RULES.lines().filter(|line| !line.contains("cut off")).collect::<Vec<_>>().join("\n");
    std::fs::write(&rules, format!("{cut}\n")).unwrap();
    let output = succeeds(&["ids", "--prefilter", &rules]);
    assert!(text(&output.stderr).contains("5 rules, "), "{}", text(&output.stderr));
    std::fs::write(&filter, &output.stdout).unwrap();
    let count = succeeds(&["dump", "-r", &capture, "--count", "-F", &filter]);
    assert_eq!(text(&count.stdout).trim(), "9");
    std::fs::write(&rules, "alert udp any any -> any 53 (sid:1;)\n").unwrap();
    let expression = text(&succeeds(&["ids", "--prefilter", &rules]).stdout);
    let count = succeeds(&["dump", "-r", &capture, "--count", expression.trim()]);
    assert_eq!(text(&count.stdout).trim(), "0");
    std::fs::write(&rules, "# no\nalert udp $OTHER any -> any 53 (sid:9;)\n").unwrap();
    let refused = fyke(&["ids", "--prefilter", &filter, "--prefilter", &rules]);
    assert_eq!(refused.status.code(), Some(2));
    std::fs::write(&filter, "alert tcp any any -> any 53 (sid:1;)\n").unwrap();
    let said = text(&fyke(&["ids", "--prefilter", &filter, "--prefilter", &rules]).stderr);
    assert!(said.contains("my.rules: line 2, sid 9") && said.contains("--set OTHER"), "{said}");
}

#[test]
fn rules_are_edited_while_they_run() {
    let folder = tempfile::tempdir().unwrap();
    let rule = "alert udp any any -> any 5001 (msg:\"first\"; content:\"one\"; sid:1;)\n";
    std::fs::write(folder.path().join("first.rules"), rule).unwrap();
    let Some(output) = Script::new(env!("CARGO_BIN_EXE_fyke"), folder.path()).run(LIVE) else {
        return;
    };
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let said = format!("{}{}", text(&output.stderr), read("ids.log"));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(read("replaced").contains("1 of 2 rules are not judged"), "{}", read("replaced"));
    assert!(read("refused").contains("lua: this option is not judged"), "{}", read("refused"));
    assert!(read("missing").contains("no rule with this id"), "{}", read("missing"));
    assert!(
        read("shown").contains("added") && !read("shown").contains("first"),
        "{}",
        read("shown")
    );
    assert!(said.contains("1 rules, ") && said.contains("= 4 alerts + 0 held back"), "{said}");
}

/// The interface is deleted while it is captured.
const GONE: &str = r#"
    set -eu
    ip link add own0 type veth peer name own1
    ip link set own0 up
    ip link set own1 up
    "$FYKE" ids -i own0 -S first.rules 2> ids.log > /dev/null &
    pid=$!
    wait_for "$FYKE" ctl show > /dev/null 2>&1
    ip link del own0
    wait_for grep -q "own0: the interface is gone" ids.log
    kill -INT $pid
    wait $pid
"#;

#[test]
fn an_interface_that_is_gone_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let rule = "alert udp any any -> any 5001 (content:\"one\"; sid:1;)\n";
    std::fs::write(folder.path().join("first.rules"), rule).unwrap();
    let Some(output) = Script::new(env!("CARGO_BIN_EXE_fyke"), folder.path()).run(GONE) else {
        return;
    };
    let log = std::fs::read_to_string(folder.path().join("ids.log")).unwrap_or_default();
    assert_eq!(output.status.code(), Some(0), "{log}{}", text(&output.stderr));
}
