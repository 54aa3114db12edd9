//! Graphs of readers in the service: what they may open, exact counts, shared within a group and gone with the reader.

mod common;

use common::{Raw, World, counts, datagram, ports};
use fyke_capture::FrameServer;
use fyke_ring::Read;
use fyke_serve::Policy;
use fyke_serve::message::{Counts, Request, Response};
use fyke_serve::policy::Names;
use std::path::Path;
use std::time::{Duration, Instant};

fn policy(text: &str) -> Policy {
    Policy::read(Path::new("policy.toml"), text, &Names::default(), &|_, _| Ok(())).unwrap()
}

/// Waits until the counts of a reader contain the last batch, which a tick adds.
fn settled(connection: &fyke_serve::Connection, all: u64) -> Counts {
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        let now = counts(connection);
        if now.accepted + now.rejected + now.refused - now.made == all {
            return now;
        }
        assert!(Instant::now() < limit, "{now:?}, not {all} frames");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn nodes(world: &World) -> Vec<String> {
    world.handle.snapshot().nodes.iter().map(|node| node.text.to_string()).collect()
}

#[test]
fn a_graph_runs_in_the_service_and_its_frames_and_counts_are_exact() {
    let mut world = World::new();
    let (one, other) = (world.connect(), world.connect());
    world.send(&[1, 2]);
    let mut reader = one.graph("(filter,port 1) > (strsearch,marker-1-) # ports", 0).unwrap();
    let mut texts = other.buffers(vec![], 0).unwrap();
    other.edit(&[], &[(1, "udp")]).unwrap();
    world.send(&[1, 2, 1]);
    world.send(&[3]);
    assert_eq!(ports(&mut reader), [1, 1]);
    assert_eq!(ports(&mut texts), [1, 2, 1, 3]);
    let all = Counts { accepted: 2, rejected: 2, ..Counts::default() };
    assert_eq!(settled(&one, 4), all);
    // Both readers are of one group: a frame is stored once.
    assert_eq!(world.counter("copied_bytes"), 4 * datagram(1).len() as u64);
    let Response::Ended { counts: ended, .. } = one.request(&Request::End {}).unwrap() else {
        panic!()
    };
    assert_eq!(ended, all, "the end is exact without a wait");
    world.send(&[1]);
    assert_eq!(ports(&mut reader), [0_u16; 0]);
    assert_eq!(reader.next(&mut Vec::new()), Read::End);
}

#[test]
fn a_pause_is_between_two_batches_and_is_not_counted() {
    let mut world = World::new();
    let one = world.connect();
    let mut reader = one.graph("(filter,port 1)", 0).unwrap();
    world.send(&[1, 2]);
    one.request(&Request::Pause {}).unwrap();
    world.send(&[1, 2, 2]);
    one.request(&Request::Start {}).unwrap();
    world.send(&[1, 1, 2]);
    assert_eq!(ports(&mut reader), [1, 1, 1]);
    assert_eq!(settled(&one, 5), Counts { accepted: 3, rejected: 2, ..Counts::default() });
}

#[test]
fn frames_that_nodes_make_are_told_apart() {
    let mut world = World::new();
    let (short, whole) = (world.connect(), world.connect());
    let mut reader = short.graph("(snap,20)", 0).unwrap();
    let mut other = whole.graph("(accept)", 0).unwrap();
    world.send(&[1, 2]);
    let mut bytes = Vec::new();
    assert!(matches!(reader.next(&mut bytes), Read::Frame(copied) if copied.len == 20));
    assert_eq!(bytes, datagram(1)[..20]);
    assert_eq!(
        ports(&mut other),
        [1, 2],
        "a frame that one graph changes is not changed for others"
    );
    let made = settled(&short, 2);
    assert_eq!((made.accepted, made.made, made.rejected), (2, 2, 2));
}

#[test]
fn equal_beginnings_are_one_node_within_a_group_and_gone_with_the_last_reader() {
    let mut world = World::new();
    let (one, other) = (world.connect(), world.connect());
    let before = nodes(&world).len();
    let mut first = one.graph("(filter,udp) > {n}(packetcount) > (filter,port 1)", 0).unwrap();
    let with_one = nodes(&world).len();
    let mut second = other.graph("(filter,udp) > {n}(packetcount) > (filter,port 2)", 0).unwrap();
    let both = nodes(&world);
    // A meter, its last filter and the end; gate, first filter and counter are there.
    assert_eq!((with_one - before, both.len() - with_one), (6, 3), "{both:?}");
    world.send(&[1, 2, 2]);
    assert_eq!((ports(&mut first), ports(&mut second)), (vec![1], vec![2, 2]));
    drop((one, first));
    let limit = Instant::now() + Duration::from_secs(20);
    while nodes(&world).len() != with_one {
        assert!(Instant::now() < limit, "{:?}", nodes(&world));
        std::thread::sleep(Duration::from_millis(2));
    }
    let view = world.handle.snapshot();
    let count = view.nodes.iter().find(|node| node.text.contains("packetcount")).unwrap();
    assert_eq!(count.counts.arrived, 3, "a node that stays keeps its counts");
    world.send(&[2]);
    assert_eq!(ports(&mut second), [2]);
}

#[test]
fn a_graph_is_replaced_and_nodes_that_stay_keep_their_state() {
    let mut world = World::new();
    let one = world.connect();
    let mut reader = one.graph("(sampler,2)", 0).unwrap();
    world.send(&[1]);
    let graph = "(sampler,2) > (filter,port 3)".to_owned();
    one.request(&Request::Graph { graph }).unwrap();
    let wrong = one.request(&Request::Graph { graph: "(sampler,2) > (filter,prot 3)".into() });
    assert!(wrong.unwrap_err().to_string().contains("prot"));
    world.send(&[3, 3, 3, 3]);
    let all = ports(&mut reader);
    assert!(all.iter().filter(|port| **port == 3).count() == 2, "{all:?}");
    let edit = one.request(&Request::Edit { remove: vec![], add: vec![] }).unwrap_err();
    assert!(edit.to_string().contains("this reader has a graph"), "{edit}");
}

#[test]
fn what_a_reader_may_not_have_is_refused_with_its_place() {
    let mut world = World::new();
    let other = world.connect();
    let _there = other.graph("{secret}(filter,udp)", 0).unwrap();
    let refused = [
        ("(filter,udp", "never closed"),
        ("(device,lo)", "device is a source"),
        ("(pcapin,/etc/passwd)", "pcapin is a source"),
        ("(tofile,/tmp/x.pcap)", "tofile opens more than memory (file)"),
        ("(tofile,/tmp/x.pcap,command=id)", "(program)"),
        ("(flows,udp:10.0.0.1:2055)", "(network)"),
        ("(tointerface,lo)", "(device)"),
        ("(tosocket,/tmp/x)", "(network)"),
        ("(toring,/tmp/x)", "(network)"),
        ("(print)", "(file)"),
        ("(debug)", "(file)"),
        ("(filter,host example.org,names=y)", "(network)"),
        ("(ruler,/etc/passwd)", "(file)"),
        ("(table,file=/etc/passwd)", "(file)"),
        ("(serve)", "(program)"),
        ("(toreader,1)", "(program)"),
        ("(gate)", "(program)"),
        ("(limit,1)", "ends the whole graph"),
        ("(keep)", "keeps frames"),
        ("(filter,udp) > {secret}()", "no node before this place has the tag {secret}"),
        ("{capture}() > (accept)", "no node before this place has the tag {capture}"),
        ("{capture}(accept)", "the tag {capture} is one of the service"),
        ("(accept) > (accept,identifier=serve)", "the tag {serve} is one of the service"),
        ("(packetcount,mbufsize=64)", "cannot be read from outside"),
        ("(nothing)", "there is no class \"nothing\""),
        ("(filter,udp)] | [(accept)", "should end here"),
        ("(sampler,0)", "sampler"),
    ];
    for (graph, why) in refused {
        let error = world.connect().graph(graph, 0).unwrap_err().to_string();
        assert!(error.contains(why), "{graph}: {error}");
        assert!(
            why.contains("mbufsize") || error.contains(graph.split('\n').next().unwrap()),
            "{error}"
        );
    }
    let many = vec!["(accept)"; 65].join(" > ");
    let error = world.connect().graph(&many, 0).unwrap_err().to_string();
    assert!(error.contains("65 nodes are more than the 64"), "{error}");
    world.send(&[1]);
    world.wait_for("readers", 1);
    assert_eq!(nodes(&world).iter().filter(|text| text.contains("meter")).count(), 1);
}

#[test]
fn a_line_of_the_policy_permits_files_and_its_filter_holds() {
    let user = rustix::process::geteuid().as_raw();
    let rule = format!("[[rule]]\nusers = [{user}]\nfilter = \"port 1\"\nopens = [\"file\"]\n");
    let mut world = World::with(policy(&rule));
    let file = world.folder.path().join("out.pcap");
    let one = world.connect();
    let graph = format!("(tofile,{})", file.display());
    let mut reader = one.graph(&graph, 0).unwrap();
    let error = world.connect().graph("(tosocket,/tmp/x)", 0).unwrap_err().to_string();
    assert!(error.contains("(network)"), "{error}");
    world.send(&[1, 2, 1]);
    assert_eq!(ports(&mut reader), [1, 1]);
    // How many frames are beyond the rule is not told.
    assert_eq!(counts(&one), Counts { accepted: 2, is_partial: true, ..Counts::default() });
    drop((one, reader));
    world.wait_for("readers", 0);
    let written = std::fs::read(&file).unwrap();
    assert_eq!(written.windows(9).filter(|bytes| bytes == b"marker-1-").count(), 2);
    let error = Policy::read(
        Path::new("p.toml"),
        "[[rule]]\nusers = [1]\nopens = [\"files\"]\n",
        &Names::default(),
        &|_, _| Ok(()),
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("p.toml:3: opens has \"files\", expected nothing, file"), "{error}");
}

#[test]
fn a_reader_has_texts_or_a_graph() {
    let world = World::new();
    let mut raw = Raw::connect(&world.path());
    raw.greet();
    raw.send(r#"{"request":"open","texts":[{"id":1,"text":""}],"graph":"(accept)"}"#);
    assert!(raw.error().contains("texts or a graph, not both"));
    raw.send(r#"{"request":"open","texts":[{"id":1,"text":""}]}"#);
    assert!(matches!(raw.answer(), Some((Response::Opened(_), _))));
    raw.send(r#"{"request":"graph","graph":"(accept)"}"#);
    assert!(raw.error().contains("this reader has texts"));
}
