//! `fyke serve` end to end: the built command on real interfaces. Many readers of one capture, exact counts of each,
//! edits, other users, and readers and services that stop, crash or are killed.

mod common;

use common::{FYKE, Running, folder, frames_of, inside, runtime, send, tool, veth};
use fyke_capture::{Interface, InterfaceSink, Sink};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::packet::Packet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Starts the service of `v1`.
fn serve(words: &[&str]) -> Running {
    let mut command = Command::new(FYKE);
    let service = Running::start(command.args(["serve", "-i", "v1"]).args(words));
    service.hear("serving v1");
    service
}

/// Starts `fyke dump -i serve:v1` with additional arguments.
fn dump(words: &[&str]) -> Running {
    let mut command = Command::new(FYKE);
    command.args(["dump", "-i", "serve:v1"]).args(words).stdout(Stdio::null());
    let reader = Running::start(&mut command);
    reader.hear("listening on serve:v1");
    reader
}

fn stopped(mut reader: Running) -> common::Sum {
    reader.signal("INT");
    assert!(reader.end().success(), "{}", reader.said());
    reader.sum()
}

fn sum(seen: u64, accepted: u64) -> common::Sum {
    common::Sum { seen, accepted, rejected: seen - accepted, lost: 0 }
}

#[test]
fn many_programs_read_one_capture_with_exact_counts() {
    if !inside("many_programs_read_one_capture_with_exact_counts") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let service = serve(&[]);
    let texts = ["udp port 5001", "udp and inbound", "udp port 5002 or arp", "outbound"];
    let readers = texts.map(|text| {
        let file = at(&text.replace(' ', "-")).with_extension("pcapng");
        (dump(&["-w", file.to_str().unwrap(), text]), file)
    });
    let mut all = dump(&["-c", "500", "--count"]);
    let received = dump(&["-Q", "in", "-w", "/dev/null"]);
    send(2000, 100);
    assert!(all.end().success(), "{}", all.said());
    for ((reader, file), accepted) in readers.into_iter().zip([1000, 2000, 1000, 0]) {
        reader.settle(2000);
        assert_eq!(stopped(reader), sum(2000, accepted));
        assert_eq!(frames_of(&file), accepted);
    }
    received.settle(2000);
    assert_eq!(stopped(received), sum(2000, 2000));
    let shown = service.ctl(&["stats"]);
    assert!(shown.contains(" 2000 seen ") && !shown.contains("reader "), "{shown}");
    assert_eq!(stopped(service).seen, 2000);
}

#[test]
fn a_graph_runs_in_the_service_and_what_a_reader_may_not_open_is_refused() {
    if !inside("a_graph_runs_in_the_service_and_what_a_reader_may_not_open_is_refused") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let service = serve(&[]);
    let (file, refused) = (at("sampled.pcapng"), at("refused.pcapng"));
    let graph = "(filter, udp port 5001, live=y) > (sampler, 10)";
    let sampled = dump(&["--serve-graph", graph, "-w", file.to_str().unwrap()]);
    let beside = dump(&["-w", "/dev/null", "udp port 5002"]);
    send(2000, 100);
    sampled.settle(2000);
    let shown = sampled.ctl(&["show"]);
    assert!(
        shown.contains(&format!("this graph decides there which frames arrive: {graph}")),
        "{shown}"
    );
    let tried = sampled.ctl(&["try", "udp"]);
    assert!(tried.contains("the graph in serve:v1 has rejected 1900 frames"), "{tried}");
    for (reader, accepted) in [(sampled, 100), (beside, 1000)] {
        reader.settle(2000);
        assert_eq!(stopped(reader), sum(2000, accepted));
    }
    assert_eq!(frames_of(&file), 100);
    let graph = format!("(tofile, {})", refused.display());
    let tries = [
        (graph.as_str(), "tofile opens more than memory (file)"),
        ("(filter, udp prot 5001)", "prot"),
        ("(limit, 1)", "ends the whole graph"),
        ("(sampler, 100", "^"),
        (" ", "the graph is empty"),
    ];
    for (graph, why) in tries {
        let mut refused = Command::new(FYKE);
        refused.args(["dump", "-i", "serve:v1", "--serve-graph", graph]);
        let output = refused.env("FYKE_RUNTIME_DIR", runtime()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{graph}: {said}");
        assert!(said.contains(why) && (said.contains('^') || graph == " "), "{said}");
    }
    assert!(!refused.exists());
    let mut pause = Command::new(FYKE);
    pause.args(["ctl", "--pid", &service.child.id().to_string(), "pause"]);
    let output = pause.env("FYKE_RUNTIME_DIR", runtime()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("fyke ctl pause READER"), "{said}");
    assert_eq!(stopped(service).seen, 2000);
}

#[test]
fn texts_beyond_the_quota_are_told_to_their_author_and_the_reader() {
    if !inside("texts_beyond_the_quota_are_told_to_their_author_and_the_reader") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let rules = at("rules.toml");
    std::fs::write(&rules, "[[rule]]\nusers = [\"root\"]\ntexts = 2\n").unwrap();
    let service = serve(&["--config", rules.to_str().unwrap()]);
    let reader = dump(&["-w", "/dev/null", "udp port 5001"]);
    let add = |text: &str| {
        let mut add = Command::new(FYKE);
        add.args(["ctl", "--pid", &reader.child.id().to_string(), "add", text]);
        let output = add.env("FYKE_RUNTIME_DIR", runtime()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    };
    assert!(!add("arp").contains("refuses"));
    let refused = "refuses the filters (3 texts are more than the 2 that this reader may have)";
    let said = add("udp port 5003");
    assert!(said.contains(refused) && said.contains("fyke ctl del"), "{said}");
    reader.hear(refused);
    assert!(add("icmp").contains("refuses the filters"));
    send(100, 60);
    reader.settle(100);
    reader.ctl(&["del", "3"]);
    reader.ctl(&["del", "4"]);
    reader.hear("takes the filters again");
    assert_eq!(reader.said().matches("refuses the filters").count(), 1, "{}", reader.said());
    send(100, 60);
    reader.settle(200);
    assert_eq!(stopped(reader), sum(200, 100));
    // A graph with too many nodes is refused like every other that is not permitted.
    let mut graph = Command::new(FYKE);
    let nodes = ["(packetcount)"; 3].join(" > ");
    graph.args(["dump", "-i", "serve:v1", "--serve-graph", &nodes]);
    let output = graph.env("FYKE_RUNTIME_DIR", runtime()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("3 nodes are more than the 2") && said.contains('^'), "{said}");
    stopped(service);
}

#[test]
fn one_reader_is_paused_and_started_by_its_number() {
    if !inside("one_reader_is_paused_and_started_by_its_number") {
        return;
    }
    veth();
    let service = serve(&[]);
    let paused = dump(&["-w", "/dev/null", "udp"]);
    let beside = dump(&["-w", "/dev/null", "udp"]);
    send(100, 60);
    paused.settle(100);
    let mut pause = Command::new(FYKE);
    pause.args(["ctl", "--pid", &service.child.id().to_string(), "pause", "1"]);
    let output = pause.env("FYKE_RUNTIME_DIR", runtime()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("it gets no frames until `fyke ctl start 1`"), "{said}");
    send(100, 60);
    beside.settle(200);
    service.ctl(&["start", "1"]);
    send(100, 60);
    paused.settle(200);
    beside.settle(300);
    assert_eq!(stopped(paused), sum(200, 200));
    assert_eq!(stopped(beside), sum(300, 300));
    let mut pause = Command::new(FYKE);
    pause.args(["ctl", "--pid", &service.child.id().to_string(), "pause", "7"]);
    let output = pause.env("FYKE_RUNTIME_DIR", runtime()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("there is no reader 7"), "{said}");
}

#[test]
fn the_filters_of_readers_run_in_the_service_and_are_edited_there() {
    if !inside("the_filters_of_readers_run_in_the_service_and_are_edited_there") {
        return;
    }
    veth();
    let service = serve(&[]);
    let reader = dump(&["--stats", "-w", "/dev/null", "udp port 5001"]);
    send(100, 60);
    reader.settle(100);
    let shown = reader.ctl(&["stats"]);
    assert!(shown.contains("the filters run in fyke serve, too"), "{shown}");
    let shown = service.ctl(&["show"]);
    assert!(shown.contains("reader 1") && shown.contains("udp port 5001  (user 0, "), "{shown}");
    let shown = service.ctl(&["stats"]);
    assert!(shown.contains("50 rejected, ") && shown.contains(" unread, 0 lost)"), "{shown}");
    reader.ctl(&["set", "udp port 5002"]);
    let shown = service.ctl(&["show"]);
    assert!(shown.contains("udp port 5002  (user 0, ") && !shown.contains("5001"), "{shown}");
    reader.ctl(&["add", "udp port 5001"]);
    send(100, 60);
    reader.settle(200);
    reader.ctl(&["set", ""]);
    send(100, 60);
    reader.settle(300);
    assert_eq!(stopped(reader), sum(300, 250));
    let mut refused = Command::new(FYKE);
    refused.args(["ctl", "--pid", &service.child.id().to_string(), "add", "udp"]);
    let refused = refused.env("FYKE_RUNTIME_DIR", runtime()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2));
    assert!(said.contains("belong to its readers"), "{said}");
}

/// A reader with a graph leaves the filters of all readers in the kernel, whatever the netmask of the interface is, and
/// a text that needs the netmask is read with it by the service and the reader.
#[test]
fn graphs_of_readers_share_the_filter_in_the_kernel() {
    if !inside("graphs_of_readers_share_the_filter_in_the_kernel") {
        return;
    }
    veth();
    tool("ip addr add 10.9.0.1/24 dev v1");
    let service = serve(&[]);
    let in_kernel = "the filters run in the kernel, too";
    let has_kernel = service.ctl(&["stats"]).contains(in_kernel);
    if !has_kernel {
        println!("skipped: where filters run: {}", service.ctl(&["stats"]));
    }
    let text = dump(&["-w", "/dev/null", "udp port 5001"]);
    let of = |filter: &str| format!("(filter, {filter}, live=y) > (packetcount)");
    let graph = dump(&["--serve-graph", &of("udp port 5002"), "-w", "/dev/null"]);
    let cast = dump(&["-w", "/dev/null", "ip broadcast"]);
    let cast_graph = dump(&["--serve-graph", &of("\"ip broadcast\""), "-w", "/dev/null"]);
    let stats = service.ctl(&["stats"]);
    assert!(!has_kernel || stats.contains(in_kernel), "{stats}");
    let to =
        |last| Packet::ethernet().ipv4([10, 8, 0, 9], [10, 9, 0, last]).udp(4000, 5001).build();
    let mut sink = InterfaceSink::open("v0").unwrap();
    let interface = Interface::new("v0", LinkType::EN10MB);
    for data in (0..10).flat_map(|_| [to(255), to(7)]) {
        sink.write(&interface, &Frame::new(LinkType::EN10MB, &data)).unwrap();
    }
    send(100, 60);
    for (reader, accepted) in [(text, 20 + 50), (graph, 50), (cast, 10), (cast_graph, 10)] {
        reader.settle(120);
        assert_eq!(stopped(reader), sum(120, accepted));
    }
    assert_eq!(stopped(service).seen, 120);
}

#[test]
fn track_demux_and_graphs_read_a_service() {
    if !inside("track_demux_and_graphs_read_a_service") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let _service = serve(&["--name", "wire"]);
    let run = |words: &[&str]| {
        let mut command = Command::new(FYKE);
        let running = Running::start(command.args(words).stdout(Stdio::null()));
        running.hear("--pid");
        running
    };
    let file = at("d.pcap");
    let to_file = format!("udp port 5001 => {}", file.display());
    let demux = run(&["demux", "-i", "serve:wire", &to_file]);
    let graph = run(&["run", "(device,serve:wire) > (filter,\"udp\") > (packetcount,export=y)"]);
    let mut late = Command::new(FYKE);
    late.args(["ctl", "--pid", &graph.child.id().to_string(), "add"]);
    late.arg("(device,\"serve:wire\",graph=\"(sampler,2)\") > (packetcount)");
    let output = late.env("FYKE_RUNTIME_DIR", runtime()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("name the service in a graph when it starts"), "{said}");
    let ftp = at("ftp.pcapng");
    let track = run(&["track", "ftp", "-i", "serve:wire", "-w", ftp.to_str().unwrap()]);
    send(400, 80);
    for (reader, accepted) in [(demux, 200), (graph, 400), (track, 0)] {
        reader.settle(400);
        assert_eq!(stopped(reader), sum(400, accepted));
    }
    assert_eq!(frames_of(&file), 200);
}

#[test]
fn readers_end_with_the_service_and_a_killed_one_is_reported() {
    if !inside("readers_end_with_the_service_and_a_killed_one_is_reported") {
        return;
    }
    veth();
    let service = serve(&[]);
    let mut reader = dump(&["-w", "/dev/null", "udp port 5001"]);
    send(300, 60);
    reader.settle(300);
    assert_eq!(stopped(service).accepted, 150);
    assert!(reader.end().success(), "{}", reader.said());
    assert_eq!(reader.sum(), sum(300, 150));
    let mut service = serve(&[]);
    let mut reader = dump(&["-w", "/dev/null", "udp"]);
    service.child.kill().unwrap();
    service.end();
    assert_eq!(reader.end().code(), Some(1));
    assert!(reader.said().contains("its last frames may be missing"), "{}", reader.said());
    let partial = "; rejected or lost since the last report of serve:v1: not counted";
    assert!(reader.said().contains(partial), "{}", reader.said());
    let none = Command::new(FYKE).args(["dump", "-i", "serve:v1"]).output().unwrap();
    assert_eq!(none.status.code(), Some(1));
    let said = String::from_utf8_lossy(&none.stderr);
    assert!(said.contains("no fyke serves \"v1\""), "{said}");
    // The socket of the killed one is replaced.
    let again = serve(&[]);
    assert!(stopped(again).seen == 0);
}

#[test]
fn a_stopped_reader_loses_its_own_frames_only_and_a_killed_one_leaves_nothing() {
    if !inside("a_stopped_reader_loses_its_own_frames_only_and_a_killed_one_leaves_nothing") {
        return;
    }
    veth();
    let service = serve(&[]);
    let slow = dump(&["-w", "/dev/null", "udp"]);
    let fast = dump(&["-w", "/dev/null", "udp"]);
    let mut killed = dump(&["-w", "/dev/null", "udp"]);
    slow.signal("STOP");
    let count = 100_000;
    for _ in 0..10 {
        send(count / 10, 60);
        std::thread::sleep(Duration::from_millis(20));
    }
    fast.settle(count);
    killed.child.kill().unwrap();
    killed.end();
    slow.signal("CONT");
    slow.settle(count);
    let of_slow = stopped(slow);
    assert_eq!((of_slow.seen, of_slow.rejected), (count, 0));
    // An index has 65,536 places, one of which may be in use.
    assert_eq!(of_slow.lost, count - 65_535, "{of_slow:?}");
    assert_eq!(stopped(fast), sum(count, count));
    service.wait_for("(epoch");
    let shown = service.ctl(&["stats"]);
    assert!(!shown.contains("reader "), "{shown}");
}

/// Runs fyke as another user, with a copy that it can read.
fn as_user(uid: u32, program: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    let ids = [format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_owned()];
    command.args(ids).arg(program).args(words);
    command
}

#[test]
fn other_users_are_refused_and_users_do_not_share_memory() {
    if !inside("other_users_are_refused_and_users_do_not_share_memory") {
        return;
    }
    if Command::new("setpriv").args(["--reuid=4711", "true"]).status().is_err() {
        return println!("skipped: no setpriv here");
    }
    veth();
    let (folder, at) = folder();
    tool(&format!("chmod 755 {}", folder.path().display()));
    let program = at("fyke");
    std::fs::copy(FYKE, &program).unwrap();
    let path = at("serve.sock");
    let service = serve(&["--name", path.to_str().unwrap(), "-Z", "nobody"]);
    let named = format!("serve:{}", path.display());
    let refused = as_user(4711, &program, &["dump", "-i", &named]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("runs as user 65534") && said.contains("not user 4711"), "{said}");
    let of_root = Running::start(Command::new(FYKE).args([
        "dump",
        "-i",
        &named,
        "-w",
        "/dev/null",
        "udp port 5001",
    ]));
    of_root.hear("listening on");
    let words = ["dump", "-i", &named, "--no-control", "-w", "/dev/null", "udp port 5002"];
    let of_nobody = Running::start(&mut as_user(65534, &program, &words));
    of_nobody.hear("listening on");
    send(100, 60);
    of_root.settle(100);
    // The maps of a process name the memory: the packet buffer, then the index.
    let memory = |running: &Running| {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", running.child.id())).unwrap();
        let ours = maps.lines().filter(|line| line.contains("fyke-ring"));
        ours.map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words[1], "r--s", "{line}");
            words[4].to_owned()
        })
        .collect::<Vec<_>>()
    };
    let (root, nobody) = (memory(&of_root), memory(&of_nobody));
    assert_eq!((root.len(), nobody.len()), (2, 2));
    assert!(root.iter().all(|inode| !nobody.contains(inode)), "{root:?} {nobody:?}");
    // As the user of the service, which is closed to other processes.
    let pid = service.child.id();
    for what in ["fd", "mem", "map_files"] {
        let look = as_user(65534, Path::new("ls"), &[&format!("/proc/{pid}/{what}/")]).output();
        assert!(!look.unwrap().status.success(), "{what}");
    }
    assert_eq!(stopped(of_nobody), sum(100, 50));
    assert_eq!(stopped(of_root), sum(100, 50));
    assert_eq!(stopped(service).seen, 100);
}

#[test]
fn a_stopped_service_hangs_no_reader() {
    if !inside("a_stopped_service_hangs_no_reader") {
        return;
    }
    veth();
    let service = serve(&[]);
    let mut reader = dump(&["-w", "/dev/null", "udp port 5001"]);
    send(100, 60);
    reader.settle(100);
    service.signal("STOP");
    // It shows its counts, and ends with those that it has.
    assert!(reader.ctl(&["stats"]).contains(" 100 seen "));
    let start = Instant::now();
    reader.signal("INT");
    assert!(reader.end().success(), "{}", reader.said());
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    assert_eq!(reader.sum(), sum(100, 50));
    // An edit that is not answered is refused, and the reader continues under the old filter.
    service.signal("CONT");
    let mut reader = dump(&["-w", "/dev/null", "udp port 5001"]);
    service.signal("STOP");
    let mut edit = Command::new(FYKE);
    edit.args(["ctl", "--pid", &reader.child.id().to_string(), "add", "udp port 5002"]);
    let output = edit.env("FYKE_RUNTIME_DIR", runtime()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("does not answer within 10 s"), "{said}");
    service.signal("CONT");
    // It makes the edit late. Without another one, it takes it back.
    std::thread::sleep(Duration::from_secs(1));
    let limit = Instant::now() + Duration::from_secs(20);
    while service.ctl(&["stats"]).contains("udp port 5002") {
        assert!(Instant::now() < limit, "{}", service.ctl(&["stats"]));
        std::thread::sleep(Duration::from_millis(20));
    }
    send(100, 60);
    reader.settle(100);
    // The late answer to the first edit does not count for the second one.
    reader.ctl(&["set", "udp port 5002"]);
    send(60, 60);
    reader.settle(160);
    reader.signal("INT");
    assert!(reader.end().success(), "{}", reader.said());
    assert_eq!(reader.sum(), sum(160, 80));
    // A reader that comes while it is stopped reports it, and gets its frames later.
    service.signal("STOP");
    let readers = [
        &["dump", "-i", "serve:v1", "-w", "/dev/null", "udp port 5001"][..],
        &["run", "(device,\"serve:v1\") > (filter,udp port 5001) > (packetcount)"][..],
    ];
    let start =
        |words: &&[&str]| Running::start(Command::new(FYKE).args(*words).stdout(Stdio::null()));
    let readers = readers.each_ref().map(start);
    readers.iter().for_each(|reader| reader.hear("serve:v1 does not answer yet; waiting"));
    service.signal("CONT");
    readers.iter().zip(["listening on", "running"]).for_each(|(reader, text)| reader.hear(text));
    send(100, 60);
    for reader in readers {
        reader.settle(100);
        assert_eq!(stopped(reader), sum(100, 50));
    }
    stopped(service);
}

#[test]
fn a_policy_serves_other_users_and_is_read_again() {
    if !inside("a_policy_serves_other_users_and_is_read_again") {
        return;
    }
    if Command::new("setpriv").args(["--reuid=4711", "true"]).status().is_err() {
        return println!("skipped: no setpriv here");
    }
    veth();
    let (folder, at) = folder();
    tool(&format!("chmod 755 {}", folder.path().display()));
    let (program, path, policy) = (at("fyke"), at("serve.sock"), at("policy.toml"));
    std::fs::copy(FYKE, &program).unwrap();
    // As an editor does: the file is replaced.
    let write = |text: &str| {
        std::fs::write(at("new"), text).unwrap();
        std::fs::rename(at("new"), &policy).unwrap();
    };
    write("[[rule]]\nusers = [4711]\nfilter = \"udp port 5001\"\nsnaplen = 50\n");
    let config = policy.to_str().unwrap();
    let service = serve(&["--name", path.to_str().unwrap(), "--config", config]);
    let named = format!("serve:{}", path.display());
    let guest = |text: &str| {
        let words = ["dump", "-i", &named, "--no-control", "-w", "/dev/null", text];
        let guest = Running::start(&mut as_user(4711, &program, &words));
        guest.hear("listening on");
        guest
    };
    let (mut one, mut other) = (guest("udp"), guest("udp port 5002"));
    // No frame can be of both, and the service gives none.
    let mut never = guest("tcp");
    send(100, 60);
    service.wait_for(" 100 seen ");
    never.signal("INT");
    assert!(never.end().success(), "{}", never.said());
    let none = "0 seen by fyke = 0 accepted + 0 rejected + 0 lost";
    assert!(never.said().contains(none), "{}", never.said());
    // The frames that the filter of the rule rejects are not told.
    one.signal("INT");
    assert!(one.end().success(), "{}", one.said());
    assert!(
        one.said().contains("50 seen by fyke = 50 accepted + 0 rejected + 0 lost"),
        "{}",
        one.said()
    );
    // A policy that is wrong changes nothing.
    write("[[rule]]\nusers = [4711]\nfilter = \"udp prot 1\"\n");
    service.signal("HUP");
    service.hear("policy.toml:3: the filter is wrong");
    service.hear("the policy before it stays in force");
    let rule = "[[rule]]\nusers = [4711]\nfilter = \"udp port 5001\"\nsnaplen = 50\n";
    write(&format!("# nothing else\n{rule}interfaces = [\"v1\", \"v0\",\n  \"vv9\"]\n"));
    service.signal("HUP");
    // The name may be wrong, or its interface appear later.
    service.hear("policy.toml:7: there is no interface \"vv9\" now");
    service.hear("1 readers stay, 0 are ended");
    write("");
    service.signal("HUP");
    service.hear("0 readers stay, 1 are ended");
    assert_eq!(other.end().code(), Some(1));
    assert!(other.said().contains("serves that user and root, not user 4711"), "{}", other.said());
    let sum = "0 seen by fyke = 0 accepted + 0 rejected + 0 lost";
    assert!(other.said().contains(sum), "{}", other.said());
    let refused = as_user(4711, &program, &["dump", "-i", &named]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    stopped(service);
    write("[[rule]]\nuser = [1]\n");
    let wrong =
        Command::new(FYKE).args(["serve", "-i", "v1", "--config", config]).output().unwrap();
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(2), "{said}");
    assert!(said.contains("policy.toml:2: unknown field `user`"), "{said}");
}

#[test]
fn a_service_manager_opens_the_socket_and_keeps_it() {
    if !inside("a_service_manager_opens_the_socket_and_keeps_it") {
        return;
    }
    let activate = "systemd-socket-activate";
    if Command::new(activate).arg("--version").output().is_err() {
        return println!("skipped: no {activate} here");
    }
    veth();
    let (_folder, at) = folder();
    let path = at("wire.sock");
    let variable = format!("FYKE_RUNTIME_DIR={}", runtime().display());
    let mut command = Command::new(activate);
    command.args(["--seqpacket", "-E", &variable, "-l", path.to_str().unwrap(), FYKE, "serve"]);
    let service = Running::start(command.args(["-i", "v1"]));
    service.hear("Listening on");
    let named = format!("serve:{}", path.display());
    let mut command = Command::new(FYKE);
    command.args(["dump", "-i", &named, "-w", "/dev/null", "udp port 5001"]);
    let reader = Running::start(&mut command);
    reader.hear("listening on");
    service.hear(&format!("as {named}"));
    send(100, 60);
    reader.settle(100);
    assert_eq!(stopped(reader), sum(100, 50));
    assert_eq!(stopped(service).seen, 100);
    assert!(path.exists(), "the socket belongs to the service manager");
}

#[test]
fn the_log_has_who_reads_what_as_text_or_json() {
    if !inside("the_log_has_who_reads_what_as_text_or_json") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let rules = at("serve.toml");
    std::fs::write(&rules, "").unwrap();
    let mut service = serve(&["--log", "json", "--config", rules.to_str().unwrap()]);
    let reader = dump(&["-w", "/dev/null", "udp port 5001"]);
    let id = reader.child.id();
    send(100, 60);
    reader.settle(100);
    stopped(reader);
    service.hear("reader_left");
    let refused = dump_of_nothing(&["-i", "serve:v1", "--serve-graph", "(tofile, /x)"]);
    assert!(refused.contains("opens"), "{refused}");
    service.hear(r#""event":"refused""#);
    service.signal("HUP");
    service.hear("policy_read");
    std::fs::write(&rules, "[[rule").unwrap();
    service.signal("HUP");
    service.hear("policy_refused");
    service.signal("INT");
    assert!(service.end().success(), "{}", service.said());
    let said = service.said();
    // Once it serves, every line is JSON.
    let lines = said.lines().skip_while(|line| !line.contains(r#""event":"serving""#));
    let events: Vec<serde_json::Value> =
        lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let event = |name: &str| events.iter().find(|one| one["event"] == name).unwrap();
    assert_eq!(event("serving")["name"], "v1");
    let opened = event("reader_opened");
    assert_eq!(opened["texts"], serde_json::json!(["udp port 5001"]));
    assert_eq!((opened["process"].as_u64(), opened["user"].as_u64()), (Some(id.into()), Some(0)));
    let left = event("reader_left");
    assert_eq!((&left["reader"], &left["counts"]["accepted"]), (&opened["reader"], &50.into()));
    assert_eq!(left["counts"]["rejected"], 50);
    assert_eq!(event("end")["accounting"]["seen"], 100);
    let text = serve(&[]);
    stopped(dump(&["-w", "/dev/null", "udp"]));
    text.hear("left (user 0, process ");
    assert!(text.said().contains("fyke: reader 1 opened (user 0, process "), "{}", text.said());
    stopped(text);
}

/// Message of a command that is refused.
fn dump_of_nothing(words: &[&str]) -> String {
    let mut command = Command::new(FYKE);
    let output = command.arg("dump").args(words).env("FYKE_RUNTIME_DIR", runtime()).output();
    let output = output.unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn wrong_command_lines_say_what_is_expected() {
    let refused = |words: &[&str]| {
        let output = Command::new(FYKE).args(words).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (words, why) in [
        (&["serve", "-i", "lo", "--name", "a b"][..], "is not a name of a service"),
        (&["serve", "-i", "lo", "--name", "/tmp/a\nb"], "without control characters"),
        (&["serve", "-i", "lo", "--name", "/tmp/"], "is not a name of a service"),
        (&["dump", "-i", "serve:./\u{1b}[2J"], "without control characters"),
        (&["run", "(pcapin, -) > (toring, \"/tmp/a\u{7}\")"], "has a control character"),
        (&["serve", "-i", "serve:x"], "name an interface"),
        (&["serve", "-i", "lo", "--log", "xml"], "possible values: text, json"),
        (&["dump", "-i", "serve:"], "the name of the service is missing"),
        (&["dump", "-i", "serve:a b"], "is not a name of a service"),
        (&["dump", "-i", "serve:x", "-B", "64"], "a service is captured by `fyke serve`"),
        (&["dump", "-i", "serve:x", "--look-back"], "holds no frames to look back at"),
        (&["dump", "-i", "serve:x", "-i", "lo"], "together with other interfaces"),
    ] {
        let (status, said) = refused(words);
        assert_eq!(status, Some(2), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
    }
}
