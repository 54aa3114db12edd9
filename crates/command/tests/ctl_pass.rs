//! Calls on single passes of a running capture, by `fyke ctl pass` and over the control socket.

mod common;

use common::{FYKE, Running, inside, runtime, send, veth};
use std::process::{Command, Output, Stdio};

/// Starts a capture that can be edited.
fn capture(filter: &str) -> Running {
    let mut command = Command::new(FYKE);
    command.args(["dump", "-i", "v1", "-w", "/dev/null", filter]).stdout(Stdio::null());
    let running = Running::start(&mut command);
    running.hear("listening on");
    running
}

/// Starts a graph that can be edited.
fn graph(texts: &[&str]) -> Running {
    let mut command = Command::new(FYKE);
    command.arg("run").args(texts).stdout(Stdio::null());
    let running = Running::start(&mut command);
    running.hear("running");
    running
}

/// The number of the pass with this text.
fn number_of(of: &Running, text: &str) -> String {
    let shown = of.ctl(&["show"]);
    let line = shown.lines().find(|line| line.contains(text));
    let line = line.unwrap_or_else(|| panic!("no {text}: {shown}"));
    line.split_whitespace().nth(1).unwrap().to_owned()
}

fn pass(of: &Running, calls: &[&str]) -> Output {
    let mut command = Command::new(FYKE);
    command.args(["ctl", "--pid", &of.child.id().to_string(), "pass"]).args(calls);
    command.env("FYKE_RUNTIME_DIR", runtime()).output().unwrap()
}

/// The message with which a call is refused.
fn refused(of: &Running, calls: &[&str]) -> String {
    let output = pass(of, calls);
    assert_eq!(output.status.code(), Some(2), "{calls:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn passes_are_made_changed_and_deleted_while_a_capture_runs() {
    if !inside("passes_are_made_changed_and_deleted_while_a_capture_runs") {
        return;
    }
    veth();
    // Frames go to the ports 5001 and 5002.
    let mut dump = capture("tcp");
    send(100, 60);
    dump.settle(100);
    let udp = ["new", "select 0 ether-ip-udp-nonfrag", "select 1 port-dst", "add 1 5002"];
    let answer = dump.ctl(&["pass", udp[0], udp[1], udp[2], udp[3]]);
    assert!(answer.contains("epoch 2"), "{answer}");
    let shown = dump.ctl(&["show"]);
    let line = shown.lines().find(|line| line.contains("destination port = 5002")).unwrap();
    let id = line.split_whitespace().nth(1).unwrap().to_owned();
    send(100, 60);
    dump.wait_for("200 seen = 50 accepted + 150 rejected");
    // One more value, then none of the first: a parameter is an edit of its own.
    dump.ctl(&["pass", &format!("add {id}.1 5001")]);
    send(100, 60);
    dump.wait_for("300 seen = 150 accepted + 150 rejected");
    dump.ctl(&["pass", &format!("remove {id}.1 5002"), &format!("dup {id}"), "poke 1 1 5003"]);
    send(100, 60);
    dump.wait_for("400 seen = 200 accepted + 200 rejected");
    // A text that is replaced leaves the passes as they are.
    dump.ctl(&["set", "tcp port 80"]);
    dump.ctl(&["pass", &format!("del {id}")]);
    send(100, 60);
    dump.wait_for("500 seen = 200 accepted + 300 rejected");
    let log = dump.ctl(&["log"]);
    assert!(log.contains("root (fyke ctl") && log.contains(", 4 calls on passes"), "{log}");
    let stats = dump.ctl(&["stats"]);
    assert!(stats.contains("200 passes edited by hand"), "{stats}");
    dump.signal("INT");
    assert!(dump.end().success(), "{}", dump.said());
    assert_eq!((dump.sum().seen, dump.sum().accepted), (500, 200));
}

#[test]
fn a_refused_call_names_itself_and_nothing_has_changed() {
    if !inside("a_refused_call_names_itself_and_nothing_has_changed") {
        return;
    }
    veth();
    let mut dump = capture("udp dst port 5001");
    let by_hand = "is not one that was made by hand";
    for (calls, told) in [
        (&["new", "select 0 ether-ip", "del 1"][..], by_hand),
        (&["new", "select 1 ether-ip"], "instruction 1 does not exist: the pass has 0"),
        (&["new", "select 0 ether"], "there is no operation \"ether\"; expected one of: true"),
        (&["new", "select 0 port 255.0.0.0"], "port takes no mask"),
        (&["new", "select 0 port", "remove 0 80"], "80"),
        (&["new", "select 0 port", "poke 0 9 1"], "there is no word 9"),
        (&["new", "select 0 port", "poke 0 0 0xffffffff"], "call 3, 'poke 0 0 0xffffffff'"),
        (&["add 0 80"], "no pass is named"),
        (&["dup 999"], "there is no pass 999"),
        (&["add 999.0 1"], by_hand),
        (&["new", "select 0 port 10.0.0"], "is not a value of 32 bits"),
        (&["old"], "expected one of: new; dup PASS"),
    ] {
        let said = refused(&dump, calls);
        assert!(said.contains(told), "{calls:?}: {said}");
    }
    let stats = dump.ctl(&["stats"]);
    assert!(stats.contains("(epoch 1)") && !stats.contains("by hand"), "{stats}");
    send(100, 60);
    dump.wait_for("100 seen = 50 accepted + 50 rejected");
    // An edit of passes is not taken back.
    dump.ctl(&["pass", "new", "select 0 never"]);
    let undo = ["ctl", "--pid", &dump.child.id().to_string(), "undo", "2"].map(str::to_owned);
    let undo = Command::new(FYKE).args(undo).env("FYKE_RUNTIME_DIR", runtime()).output().unwrap();
    let said = String::from_utf8_lossy(&undo.stderr).into_owned();
    assert!(said.contains("epoch 2 edited passes by hand"), "{said}");
    dump.signal("INT");
    assert!(dump.end().success(), "{}", dump.said());
}

#[test]
fn passes_of_a_node_are_edited_while_a_graph_runs() {
    if !inside("passes_of_a_node_are_edited_while_a_graph_runs") {
        return;
    }
    veth();
    let text = "(device, v1) > {kept}(bpf, expression=tcp, live=y) > (packetcount, export=y)";
    let mut run = graph(&[text]);
    send(100, 60);
    run.settle(100);
    let calls = ["new", "select 0 ether-ip-udp-nonfrag", "select 1 port-dst", "add 1 5002"];
    let answer = run.ctl(&[&["pass"], &calls[..]].concat());
    assert!(answer.contains("epoch 1"), "{answer}");
    let id = number_of(&run, "destination port = 5002");
    send(100, 60);
    run.wait_for("200 seen = 50 accepted + 150 rejected");
    // The node is named, and another text does not change its passes.
    run.ctl(&["pass", "--node", "kept", &format!("add {id}.1 5001")]);
    run.ctl(&["add", "(device, v1) > {other}(bpf, expression=icmp, live=y) > (packetcount)"]);
    send(100, 60);
    run.wait_for("300 seen = 150 accepted + 150 rejected");
    for (calls, told) in [
        (&["new"][..], "name one with --node: kept, other"),
        (&["--node", "last", "new"], "no node \"last\" has filters"),
        (&["--node", "kept", "del 999"], "999"),
    ] {
        let said = refused(&run, calls);
        assert!(said.contains(told), "{calls:?}: {said}");
    }
    // An edit of the node's text leaves its passes as they are.
    run.ctl(&["set", &text.replace("tcp", "arp")]);
    run.ctl(&["pass", &format!("remove {id}.1 5001")]);
    send(100, 60);
    run.wait_for("400 seen = 200 accepted + 200 rejected");
    let log = run.ctl(&["log"]);
    assert!(log.contains("root (fyke ctl") && log.contains(", 4 calls on passes"), "{log}");
    let epochs = log.lines().filter(|line| line.contains("call")).count();
    assert_eq!(epochs, 3, "{log}");
    run.ctl(&["pass", &format!("del {id}")]);
    send(100, 60);
    run.wait_for("500 seen = 200 accepted + 300 rejected");
    run.signal("INT");
    assert!(run.end().success(), "{}", run.said());
}

#[test]
fn a_graph_without_passes_of_its_own_refuses_the_calls() {
    if !inside("a_graph_without_passes_of_its_own_refuses_the_calls") {
        return;
    }
    veth();
    let mut run = graph(&["(device, v1) > (packetcount)"]);
    let said = refused(&run, &["new"]);
    assert!(said.contains("no node of this graph has filters"), "{said}");
    run.ctl(&["set", "(device, v1) > (demux, expression=\"udp => 1\") -1-> (packetcount)"]);
    let said = refused(&run, &["new"]);
    assert!(said.contains("expected a node of class bpf"), "{said}");
    run.signal("INT");
    assert!(run.end().success(), "{}", run.said());
}

#[test]
fn passes_of_a_reader_are_edited_beside_other_readers() {
    if !inside("passes_of_a_reader_are_edited_beside_other_readers") {
        return;
    }
    veth();
    let start = |words: &[&str], ready: &str| {
        let running = Running::start(Command::new(FYKE).args(words).stdout(Stdio::null()));
        running.hear(ready);
        running
    };
    let service = start(&["serve", "-i", "v1"], "serving v1");
    let reader = |filter| ["dump", "-i", "serve:v1", "-w", "/dev/null", filter];
    let mut edited = start(&reader("tcp"), "listening on serve:v1");
    let mut beside = start(&reader("udp port 5001"), "listening on serve:v1");
    send(100, 60);
    edited.settle(100);
    edited.ctl(&[
        "pass",
        "new",
        "select 0 ether-ip-udp-nonfrag",
        "select 1 port-dst",
        "add 1 5002",
    ]);
    let id = number_of(&edited, "destination port = 5002");
    send(100, 60);
    edited.wait_for("200 seen = 50 accepted + 150 rejected");
    edited.ctl(&["pass", &format!("add {id}.1 5001")]);
    send(100, 60);
    edited.wait_for("300 seen = 150 accepted + 150 rejected");
    edited.ctl(&["pass", &format!("del {id}")]);
    send(100, 60);
    edited.wait_for("400 seen = 150 accepted + 250 rejected");
    beside.wait_for("400 seen = 200 accepted + 200 rejected");
    let said = refused(&service, &["new"]);
    assert!(said.contains("belong to its readers: edit a reader"), "{said}");
    for reader in [&mut edited, &mut beside] {
        reader.signal("INT");
        assert!(reader.end().success(), "{}", reader.said());
        assert_eq!((reader.sum().seen, reader.sum().lost), (400, 0));
    }
}

#[test]
fn where_each_text_counts_its_own_frames_the_refusal_says_what_to_do() {
    if !inside("where_each_text_counts_its_own_frames_the_refusal_says_what_to_do") {
        return;
    }
    veth();
    let mut command = Command::new(FYKE);
    command.args(["demux", "-i", "v1", "udp => /dev/null"]).stdout(Stdio::null());
    let mut demux = Running::start(&mut command);
    demux.hear("--pid");
    let said = refused(&demux, &["new"]);
    assert!(said.contains("edit the texts (fyke ctl set, add, del)"), "{said}");
    demux.signal("INT");
    assert!(demux.end().success(), "{}", demux.said());
}
