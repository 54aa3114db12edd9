//! `fyke relay` and sources of other machines: two network namespaces joined by a veth, and real certificates.

mod common;

use common::{FYKE, Running, Sum, folder, frames_of, inside, runtime, send, tool, veth};
use fyke_testkit::certificates::{Authority, Certificate};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const AT: &str = "10.9.0.1:4747";

/// The other machine: a namespace that lives as long as its process.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _ended_already = self.0.wait();
    }
}

impl Machine {
    /// Makes it, with a link to this one: 10.9.0.1 here, 10.9.0.2 there.
    fn new() -> Machine {
        let other = Command::new("unshare").args(["-n", "sleep", "600"]).spawn().unwrap();
        let machine = Machine(other);
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let there = format!("/proc/{}/ns/net", machine.0.id());
        while std::fs::read_link(&there).unwrap() == own {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        tool("ip link add w0 type veth peer name w1");
        tool(&format!("ip link set w1 netns {}", machine.0.id()));
        tool("ip addr add 10.9.0.1/24 dev w0");
        tool("ip link set w0 up");
        tool("ip link set lo up");
        machine.tool("ip addr add 10.9.0.2/24 dev w1");
        machine.tool("ip link set w1 up");
        machine.tool("ip link set lo up");
        common::carrier_of(["w0", "v0"]);
        machine
    }

    fn tool(&self, line: &str) {
        tool(&format!("nsenter -t {} -n {line}", self.0.id()));
    }

    fn fyke(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.0.id().to_string(), "-n", FYKE]);
        command.env("FYKE_RUNTIME_DIR", runtime());
        command
    }
}

/// Certificates of a test.
struct Files {
    authority: Authority,
    relay: Certificate,
    client: Certificate,
}

impl Files {
    fn new(folder: &Path) -> Files {
        let authority = Authority::new(folder, "authority");
        let (relay, client) =
            (authority.sign("relay", "IP:10.9.0.1"), authority.sign("probe", "DNS:probe"));
        Files { authority, relay, client }
    }

    /// The options of a client.
    fn of(&self, client: &Certificate) -> Vec<PathBuf> {
        let option = |name: &str, path: &Path| [PathBuf::from(name), path.to_owned()];
        [
            option("--tls-ca", &self.authority.file()),
            option("--tls-cert", &client.certificate),
            option("--tls-key", &client.key),
        ]
        .concat()
    }

    fn relay(&self, words: &[&str]) -> Running {
        let mut command = Command::new(FYKE);
        command
            .args(["relay", "-Z", "root", "--listen", AT])
            .arg("--tls-cert")
            .arg(&self.relay.certificate);
        command
            .arg("--tls-key")
            .arg(&self.relay.key)
            .arg("--tls-clients")
            .arg(self.authority.file());
        let relay = Running::start(command.args(words).stdout(Stdio::null()));
        relay.hear(" at 10.9.0.1:4747 for ");
        relay
    }

    fn dump(&self, machine: &Machine, source: &str, words: &[&str]) -> Running {
        let mut command = machine.fyke();
        command.args(["dump", "-i", source]).args(self.of(&self.client)).args(words);
        let dump = Running::start(command.stdout(Stdio::null()));
        dump.hear(&format!("listening on {source}"));
        dump
    }

    fn refused(&self, machine: &Machine, client: &Certificate, source: &str) -> String {
        let mut command = machine.fyke();
        let output: Output =
            command.args(["dump", "-i", source]).args(self.of(client)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        said
    }
}

fn service() -> Running {
    let mut command = Command::new(FYKE);
    let service = Running::start(command.args(["serve", "-i", "v1"]).stdout(Stdio::null()));
    service.hear("serving v1");
    service
}

fn local(words: &[&str]) -> Running {
    let mut command = Command::new(FYKE);
    command.args(["dump", "-i", "serve:v1"]).args(words).stdout(Stdio::null());
    let reader = Running::start(&mut command);
    reader.hear("listening on serve:v1");
    reader
}

fn stopped(mut running: Running) -> Sum {
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    running.sum()
}

/// The lines of a file with times, lengths and bytes.
fn lines(path: &Path) -> String {
    let mut command = Command::new(FYKE);
    let output =
        command.args(["dump", "-nn", "-e", "--nano", "-tt", "-xx", "-r"]).arg(path).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// True in the namespaces of a test that has what it needs.
fn starts(test: &str) -> bool {
    if !Authority::is_possible() {
        println!("skipped: openssl is not installed");
        return false;
    }
    inside(test)
}

#[test]
fn a_client_on_another_machine_gets_its_frames_with_exact_counts() {
    if !starts("a_client_on_another_machine_gets_its_frames_with_exact_counts") {
        return;
    }
    veth();
    let ((folder, at), machine) = (folder(), Machine::new());
    let files = Files::new(folder.path());
    let service = service();
    let relay = files.relay(&["-i", "serve:v1"]);
    let source = format!("serve:{AT}");
    let (far, near) = (at("far.pcapng"), at("near.pcapng"));
    let near_reader = local(&["-w", near.to_str().unwrap(), "udp port 5001"]);
    let client = files.dump(&machine, &source, &["-w", far.to_str().unwrap(), "udp port 5001"]);
    relay.hear("probe at 10.9.0.2:");
    send(2000, 100);
    client.settle(2000);
    // Only its frames have crossed.
    let shown = client.ctl(&["stats"]);
    assert!(shown.contains("fyke serve"), "{shown}");
    assert!(service.ctl(&["stats"]).contains("udp port 5001"), "{}", service.ctl(&["stats"]));
    near_reader.settle(2000);
    assert_eq!(stopped(near_reader).accepted, 1000);
    // An edit reaches the far side before it is in force here.
    client.ctl(&["set", "udp port 5002"]);
    assert!(service.ctl(&["stats"]).contains("udp port 5002"), "{}", service.ctl(&["stats"]));
    send(1000, 100);
    client.settle(3000);
    // A text that is wrong changes nothing.
    let mut wrong = Command::new(FYKE);
    wrong.args(["ctl", "--pid", &client.child.id().to_string(), "set", "udp prt 1"]);
    assert!(!wrong.env("FYKE_RUNTIME_DIR", runtime()).output().unwrap().status.success());
    let sum = stopped(client);
    assert_eq!((sum.seen, sum.accepted, sum.lost), (3000, 1500, 0));
    assert_eq!(frames_of(&far), 1500);
    let near_lines = lines(&near);
    assert_eq!(near_lines.lines().count(), lines(&near).lines().count());
    assert!(
        lines(&far).starts_with(&near_lines),
        "time, lengths and bytes are those of a reader there"
    );
    relay.hear("has left: 1500 frames sent, 1500 rejected, 0 lost");
    // The class of tracks and graphs: the same source.
    let mut track = machine.fyke();
    track.args(["track", "ftp", "-i", &source, "-w", "/dev/null"]).args(files.of(&files.client));
    let track = Running::start(track.stdout(Stdio::null()));
    track.hear("listening on");
    stopped(track);
    stopped_quietly(relay);
    stopped(service);
}

#[test]
fn certificates_and_rules_decide_what_a_client_sees() {
    if !starts("certificates_and_rules_decide_what_a_client_sees") {
        return;
    }
    veth();
    let ((folder, at), machine) = (folder(), Machine::new());
    let files = Files::new(folder.path());
    let policy = at("serve.toml");
    let rule = "[[rule]]\nnames = [\"probe\"]\ninterfaces = [\"v1\"]\nfilter = \"udp port 5001\"\n\
                snaplen = 60\ntexts = 2\nreaders = 1\n";
    std::fs::write(&policy, rule).unwrap();
    let service = service();
    let relay = files.relay(&["-i", "serve:v1", "--config", policy.to_str().unwrap()]);
    let source = format!("serve:{AT}");
    let file = at("some.pcapng");
    let client = files.dump(&machine, &source, &["-w", file.to_str().unwrap(), "udp"]);
    // One connection for this name; another name; another authority; a capture that is not there.
    let said = files.refused(&machine, &files.client, &source);
    assert!(said.contains("probe has 1 connections already; at most 1"), "{said}");
    let lab = files.authority.sign("lab", "DNS:lab");
    let said = files.refused(&machine, &lab, &source);
    assert!(said.contains("has no rule for the name \"lab\" on v1"), "{said}");
    let strangers = Authority::new(folder.path(), "strangers");
    let stranger = strangers.sign("probe", "DNS:probe");
    let said = files.refused(&machine, &stranger, &source);
    assert!(said.contains("TLS: ") || said.contains("closed"), "{said}");
    let said = files.refused(&machine, &lab, &format!("{source}/eth9"));
    assert!(said.contains("offers no service \"eth9\", but v1"), "{said}");
    // A relay that is another host than the address.
    let said = files.refused(&machine, &lab, "serve:10.9.0.1:4748");
    assert!(said.contains("10.9.0.1:4748: Connection refused"), "{said}");
    // Without certificates it is the name of a service here.
    let mut plain = machine.fyke();
    let output = plain.args(["dump", "-i", &source]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--tls-ca, --tls-cert and --tls-key"), "{said}");
    send(2000, 100);
    client.wait_for(" 1000 accepted");
    // No text leaves its parentheses.
    client.ctl(&["set", "udp port 5001 or udp port 5002"]);
    send(2000, 100);
    client.wait_for(" 2000 accepted");
    let mut client = client;
    client.signal("INT");
    assert!(client.end().success(), "{}", client.said());
    // The rejected ones are beyond the rule, and not told.
    let sum =
        "2000 seen by fyke = 2000 accepted + 0 rejected + 0 lost; rejected by the policy of serve:";
    assert!(client.said().contains(sum), "{}", client.said());
    assert_eq!(frames_of(&file), 2000);
    assert!(lines(&file).contains("length 142: ") && !lines(&file).contains("10.0.0.2.5002"));
    stopped_quietly(relay);
    stopped(service);
}

#[test]
fn a_client_that_stalls_loses_frames_and_knows_how_many() {
    if !starts("a_client_that_stalls_loses_frames_and_knows_how_many") {
        return;
    }
    veth();
    let ((folder, at), machine) = (folder(), Machine::new());
    let files = Files::new(folder.path());
    let service = service();
    let relay = files.relay(&["-i", "serve:v1"]);
    let file = at("some.pcapng");
    let client = files.dump(&machine, &format!("serve:{AT}"), &["-w", file.to_str().unwrap()]);
    let reader = local(&["-w", "/dev/null"]);
    send(100, 1400);
    client.settle(100);
    client.signal("STOP");
    let count = 100_000;
    for part in 1..=50 {
        send(count / 50, 1400);
        // In parts, so that the capture itself loses nothing on a busy machine.
        reader.settle(count / 50 * part + 100);
    }
    client.signal("CONT");
    client.settle(count + 100);
    let sum = stopped(client);
    assert_eq!(sum.seen, count + 100);
    assert!(sum.lost > 0 && sum.rejected == 0, "{sum:?}");
    assert_eq!(frames_of(&file), sum.accepted);
    // The client that stalled has cost the others nothing.
    let beside = stopped(reader);
    assert_eq!(beside.seen, count + 100);
    assert!(beside.lost < sum.lost, "{beside:?} {sum:?}");
    relay.hear(&format!("{} lost because it was slow", sum.lost - beside.lost));
    stopped_quietly(relay);
    stopped(service);
}

#[test]
fn an_end_of_either_side_is_told_to_the_other() {
    if !starts("an_end_of_either_side_is_told_to_the_other") {
        return;
    }
    veth();
    let ((folder, _at), machine) = (folder(), Machine::new());
    let files = Files::new(folder.path());
    let service = service();
    let mut relay = files.relay(&["-i", "serve:v1"]);
    let source = format!("serve:{AT}");
    // A client that is killed leaves nothing at the service.
    let mut killed = files.dump(&machine, &source, &["udp port 9"]);
    assert!(service.ctl(&["stats"]).contains("udp port 9"));
    killed.signal("KILL");
    killed.end();
    relay.hear("has left");
    let shown = service.ctl(&["stats"]);
    assert!(!shown.contains("udp port 9"), "{shown}");
    // Nor does one that is killed with frames that it has not taken: they are lost.
    let beside = local(&["-w", "/dev/null"]);
    let mut killed = files.dump(&machine, &source, &["-w", "/dev/null"]);
    killed.signal("STOP");
    send(2_000, 1400);
    beside.settle(2_000);
    std::thread::sleep(std::time::Duration::from_millis(300));
    killed.signal("KILL");
    killed.end();
    relay.hear("lost with the connection (sent, not confirmed)");
    stopped(beside);
    // A relay that is stopped, and one that is killed.
    let ends = ["--no-reconnect", "-w", "/dev/null"];
    let mut first = files.dump(&machine, &source, &ends);
    send(10, 100);
    first.settle(10);
    relay.signal("INT");
    assert!(relay.end().success());
    assert_eq!(first.end().code(), Some(1));
    assert!(
        first.said().contains(&format!("{source}: the relay: it was stopped")),
        "{}",
        first.said()
    );
    let mut relay = files.relay(&["-i", "serve:v1"]);
    let mut second = files.dump(&machine, &source, &ends);
    relay.signal("KILL");
    relay.end();
    assert_eq!(second.end().code(), Some(1));
    assert!(second.said().contains("closed the connection"), "{}", second.said());
    // The end of the capture is an end, not a failure.
    let relay = files.relay(&["-i", "serve:v1"]);
    let mut third = files.dump(&machine, &source, &["-w", "/dev/null"]);
    send(10, 100);
    third.settle(10);
    stopped(service);
    assert!(third.end().success(), "{}", third.said());
    assert_eq!(third.sum().accepted, 10);
    stopped_quietly(relay);
}

#[test]
fn a_lost_connection_is_made_again_with_the_texts_and_its_gap_is_named() {
    if !starts("a_lost_connection_is_made_again_with_the_texts_and_its_gap_is_named") {
        return;
    }
    veth();
    let ((folder, at), machine) = (folder(), Machine::new());
    let files = Files::new(folder.path());
    let service = service();
    let mut relay = files.relay(&["-i", "serve:v1"]);
    let source = format!("serve:{AT}");
    let far = at("far.pcapng");
    let mut client = files.dump(&machine, &source, &["-w", far.to_str().unwrap(), "udp port 5001"]);
    send(2000, 100);
    client.settle(2000);
    relay.signal("KILL");
    relay.end();
    client.hear(&format!("{source}: the other end has closed the connection; connecting again"));
    // An edit does not wait for the relay, and the frames of the gap are in no count.
    client.ctl(&["set", "udp port 5002"]);
    send(1000, 100);
    let mut relay = files.relay(&["-i", "serve:v1"]);
    client.hear("connected again; not seen: frames of ");
    assert!(service.ctl(&["stats"]).contains("udp port 5002"), "{}", service.ctl(&["stats"]));
    assert!(!service.ctl(&["stats"]).contains("udp port 5001"));
    send(2000, 100);
    client.settle(4000);
    // A relay that ends in order tells its last counts; the client ends in order while it is away.
    relay.signal("INT");
    assert!(relay.end().success());
    client.hear("the relay: it was stopped; connecting again");
    client.signal("INT");
    assert!(client.end().success(), "{}", client.said());
    let sum = client.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (4000, 2000, 0));
    assert_eq!(frames_of(&far), 2000);
    let gap = format!(" s without a connection to {source} in 2 times");
    assert!(client.said().contains(&gap), "{}", client.said());
    stopped(service);
}

#[test]
fn a_relay_that_refuses_after_a_loss_ends_the_client() {
    if !starts("a_relay_that_refuses_after_a_loss_ends_the_client") {
        return;
    }
    veth();
    let ((folder, at), machine) = (folder(), Machine::new());
    let files = Files::new(folder.path());
    let mut service = service();
    let source = format!("serve:{AT}");
    let lose = |mut relay: Running, client: &Running| {
        relay.signal("KILL");
        relay.end();
        client.hear("connecting again");
    };
    let words = ["-w", "/dev/null"];
    let dump = || files.dump(&machine, &source, &words);
    // A certificate of another authority.
    let (relay, mut client) = (files.relay(&["-i", "serve:v1"]), dump());
    lose(relay, &client);
    std::fs::create_dir(at("strangers")).unwrap();
    let relay = Files::new(&at("strangers")).relay(&["-i", "serve:v1"]);
    assert_eq!(client.end().code(), Some(1), "{}", client.said());
    assert!(client.said().contains(&format!("{source}: TLS: ")), "{}", client.said());
    stopped_quietly(relay);
    // A policy without a rule for it.
    let (relay, mut client) = (files.relay(&["-i", "serve:v1"]), dump());
    lose(relay, &client);
    let policy = at("serve.toml");
    std::fs::write(&policy, "[[rule]]\nnames = [\"lab\"]\ninterfaces = [\"v1\"]\n").unwrap();
    let relay = files.relay(&["-i", "serve:v1", "--config", policy.to_str().unwrap()]);
    assert_eq!(client.end().code(), Some(1), "{}", client.said());
    assert!(client.said().contains("has no rule for the name \"probe\""), "{}", client.said());
    stopped_quietly(relay);
    // A capture that is not there yet is no refusal.
    let (relay, client) = (files.relay(&["-i", "serve:v1"]), dump());
    lose(relay, &client);
    service.signal("KILL");
    service.end();
    let relay = files.relay(&["-i", "serve:v1"]);
    relay.hear("no fyke serves \"v1\"");
    let service = self::service();
    client.hear("connected again");
    send(100, 100);
    client.settle(100);
    assert_eq!(stopped(client).accepted, 100);
    stopped_quietly(relay);
    stopped(service);
}

fn stopped_quietly(mut running: Running) {
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
}

/// An edge of a graph: what a node passes there arrives at the nodes here, and the sums of both machines close.
#[test]
fn an_edge_of_a_graph_crosses_machines() {
    if !starts("an_edge_of_a_graph_crosses_machines") {
        return;
    }
    veth();
    let ((folder, at), machine) = (folder(), Machine::new());
    let files = Files::new(folder.path());
    let ring = at("edge.ring");
    let shown = ring.display();
    let graph = format!(
        "(device, v1) > {{filter}}(filter, expression='udp port 5001', live=y) > {{edge}}(toring, {shown})"
    );
    let mut first = Command::new(FYKE);
    first.args(["run", "-Z", "root", "--stats", &graph]);
    let mut first = Running::start(first.stdout(Stdio::piped()));
    first.hear("running");
    let relay = files.relay(&["-i", &format!("ring:{shown}")]);
    let source = format!("ring:{AT}/edge.ring");
    let [ca, cert, key] =
        [files.authority.file(), files.client.certificate.clone(), files.client.key.clone()]
            .map(|file| file.display().to_string());
    let graph = format!(
        "(device, {source}, ca={ca}, cert={cert}, key={key}) > {{far}}(filter, udp, live=y) > (packetcount)"
    );
    let mut second = machine.fyke();
    second.args(["run", "-Z", "root", "--stats", &graph]);
    let mut second = Running::start(second.stdout(Stdio::piped()));
    second.hear("running");
    relay.hear("reads ring:edge.ring");
    send(2000, 100);
    second.wait_for(" 1000 seen");
    let ended = |running: &mut Running| {
        running.signal("INT");
        assert!(running.end().success(), "{}", running.said());
        String::from_utf8(common::rest(running)).unwrap() + &running.said()
    };
    let (there, here) = (ended(&mut second), ended(&mut first));
    // edge: arrived = passed; far: arrived there = passed by the edge here, none lost.
    let line = |said: &str, node: &str| {
        let found = said.lines().find(|line| line.starts_with(node));
        found.unwrap_or_else(|| panic!("{node}: {said}")).to_owned()
    };
    let sum = "1000 arrived = 1000 passed + 0 rejected + 0 taken + 0 lost";
    assert!(line(&here, "edge").contains(sum), "{here}");
    assert!(line(&there, "far").contains(sum), "{there}");
    relay.hear("has left: 1000 frames sent, 0 rejected, 0 lost");
    stopped_quietly(relay);
}
