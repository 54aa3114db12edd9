//! The effect of each class on frames, in complete graphs.

use fyke_capture::MemorySource;
use fyke_frame::{Frame, LinkType};
use fyke_graph::node::{Class, Kind};
use fyke_graph::{Classes, GraphHandle, GraphView, Plan};
use std::sync::atomic::AtomicBool;

/// 100 UDP frames of IPv4, 10 ms apart: source 10.0.0.(n mod 5), ports n mod 4 to 53, payload `n=<n>`.
fn classes() -> Classes {
    let mut classes = Classes::new();
    let open: fyke_graph::node::Open = |_| {
        let mut source = MemorySource::new(LinkType::RAW);
        for number in 0..100u32 {
            let payload = format!("n={number}");
            let mut bytes = vec![0x45, 0, 0, 28 + payload.len() as u8, 0, 0, 0, 0, 64, 17, 0, 0];
            bytes.extend([10, 0, 0, (number % 5) as u8, 10, 0, 1, 1]);
            bytes.extend([0, (number % 4) as u8, 0, 53, 0, 8 + payload.len() as u8, 0, 0]);
            bytes.extend(payload.as_bytes());
            let mut frame = Frame::new(LinkType::RAW, &bytes);
            frame.timestamp_ns = 1_000_000_000 + u64::from(number) * 10_000_000;
            source.push(&frame);
        }
        source.repeat(1);
        Ok(Box::new(source))
    };
    classes.register(Class { name: "frames", kind: Kind::Source, open, ..Class::NODE });
    classes
}

fn run(graph: &str) -> GraphView {
    let text = format!("(frames) > {graph}");
    let started = GraphHandle::start(&[&text], classes());
    let (mut engine, _) = started.unwrap_or_else(|error| panic!("{text}\n{error}"));
    engine.run(&AtomicBool::new(false)).unwrap();
    let view = engine.view();
    for node in &view.nodes {
        assert!(node.counts.is_exact() && node.failed.is_none(), "{node:?}");
    }
    view
}

fn passed(graph: &str) -> u64 {
    run(graph).nodes.last().unwrap().counts.passed
}

fn counter(graph: &str, name: &str) -> f64 {
    let view = run(graph);
    let counters = &view.nodes.last().unwrap().counters;
    let found = counters.iter().find(|counter| counter.name == name);
    found.unwrap_or_else(|| panic!("{graph}: no {name} in {counters:?}")).value
}

#[test]
fn filters() {
    assert_eq!(passed("(bpf, \"src host 10.0.0.3\")"), 20);
    assert_eq!(passed("(bpf)"), 100);
    // n=1 and n=10 to n=19; there is no n=100.
    assert_eq!(passed("(strsearch, expression=\"n=1\")"), 11);
    assert_eq!(passed("(strsearch, expression=\"N=1\", nocase=y, offset=28)"), 11);
    assert_eq!(passed("(strsearch, expression=\"n=1\", offset=29)"), 0);
    assert_eq!(passed("(strsearch, expression=\"n=1\", depth=30)"), 0);
    let two = "(strsearch, expression=\"n=1\", expression=\"|6e 3d|2\") -2-> (packetcount)";
    assert_eq!(passed(two), 11);
}

#[test]
fn drop_rejects_and_debug_passes() {
    let view = run("(sampler,4) > {d}(drop) > {n}(packetcount)");
    let counts = |name| view.node(name).unwrap().counts;
    assert_eq!((counts("d").rejected, counts("d").passed, counts("n").arrived), (25, 0, 0));
    let view = run("(limit,3) > {e}(debug, limit=2)");
    let shown = view.node("e").unwrap();
    assert_eq!((shown.counts.passed, shown.counts.rejected), (3, 0));
    assert_eq!(shown.counters[0].value, 1.0, "two are shown, one is not");
}

#[test]
fn samplers() {
    assert_eq!(passed("(sampler,3)"), 34);
    let probabilistic = passed("(sampler,2,mode=probabilistic,seed=5)");
    assert!((30..70).contains(&probabilistic));
    assert_eq!(passed("(sampler,2,mode=probabilistic,seed=5)"), probabilistic);
    // 20 conversations of 5 frames each: a conversation passes completely or not at all.
    let view = run("(sampler,2,mode=flow) > (topk,100,field=src)");
    let sampled = view.nodes.last().unwrap().counts.passed;
    assert!(sampled > 0 && sampled < 100 && sampled.is_multiple_of(5), "{sampled}");
}

#[test]
fn meters() {
    assert_eq!(counter("(bytecount)", "bytes"), (10 * 31 + 90 * 32) as f64);
    assert_eq!(counter("(ratemeter,100)", "highest_packets_per_s"), 100.0);
    assert_eq!(counter("(topk,2,field=src)", "10.0.0.0"), 20.0);
    assert_eq!(counter("(topk,2,field=port)", "53"), 100.0);
    assert_eq!(counter("(gap)", "largest_gap_ns"), 1e7);
    assert_eq!(counter("(gap)", "mean_bytes"), 31.9);
    assert_eq!(passed("(threshold,4,interval=100)"), 60);
    assert_eq!(passed("(field,sourceport) -3-> (packetcount)"), 25);
    assert_eq!(passed("(field,protocol) -17-> (packetcount)"), 100);
}

/// Frames with the same address or port as source and destination: each counts once for this value.
#[test]
fn a_frame_counts_once_for_a_value_of_both_ends() {
    let mut classes = classes();
    let open: fyke_graph::node::Open = |_| {
        let mut source = MemorySource::new(LinkType::RAW);
        for end in 0..10u8 {
            let mut bytes = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
            bytes.extend([10, 0, 0, 9, 10, 0, 0, 9 + end % 2]);
            bytes.extend([0, 53, 0, 53 + end % 2, 0, 8, 0, 0]);
            source.push(&Frame::new(LinkType::RAW, &bytes));
        }
        source.repeat(1);
        Ok(Box::new(source))
    };
    classes.register(Class { name: "loops", kind: Kind::Source, open, ..Class::NODE });
    let graph = "(loops) > [[(topk,2,field=port) | (topk,2,field=host) | (topk,2,field=srcport)] | \
                 (topk,2,field=dst)]";
    let (mut engine, _) = GraphHandle::start(&[graph], classes).unwrap();
    engine.run(&AtomicBool::new(false)).unwrap();
    let view = engine.view();
    let counted = |node: usize, name: &str| {
        view.nodes[node].counters.iter().find(|one| one.name == name).map_or(0.0, |one| one.value)
    };
    assert_eq!((counted(1, "53"), counted(1, "54")), (10.0, 5.0));
    assert_eq!((counted(2, "10.0.0.9"), counted(2, "10.0.0.10")), (10.0, 5.0));
    assert_eq!((counted(3, "53"), counted(4, "10.0.0.9")), (10.0, 5.0));
}

/// The counts of a class depend neither on the number of edges that bring a frame nor on cuts of the batch.
#[test]
fn a_frame_of_two_edges_counts_once_in_every_class() {
    let classes = [
        "(packetcount)",
        "(bytecount)",
        "(ratemeter,100)",
        "(gap)",
        "(dedup,1000)",
        "(distribution)",
        "(distribution,gap)",
        "(burst,5000)",
        "(bucket,100)",
        "(threshold,4,interval=100)",
        "(topk,5,field=host)",
        "(strsearch,expression=\"n=1\")",
        "(table,expression=\"10.0.0.1 = 3\",key=src)",
        "(sampler,3)",
        "(snap,30)",
        "(bloom,\"ip=10.0.0.3\")",
        "(demux,\"udp => 1\",expression=\"src host 10.0.0.1 => 1\",expression=\"udp => 1\")",
    ];
    for class in classes {
        let told = |graph: &str| {
            let view = run(graph);
            let node = view.node("n").unwrap();
            (node.counters.clone(), node.counts.arrived, node.counts.passed)
        };
        let once = told(&format!("{{n}}{class}"));
        let twice = told(&format!("[(accept) | (bpf,udp)] > {{n}}{class}"));
        assert_eq!(once, twice, "{class}: two edges");
        // The limit cuts the first batch; what is before it is judged again.
        let limited = told(&format!("(limit,40) > {{n}}{class}"));
        let cut = told(&format!("[(accept) | (bpf,udp)] > (limit,40) > {{n}}{class}"));
        assert_eq!(limited, cut, "{class}: two edges and a cut");
        assert_eq!(limited.1, 40, "{class}");
    }
}

/// Filters and strings that are there twice have counts of their own, which an edit keeps.
#[test]
fn counts_of_equal_parameters_survive_an_edit() {
    let nodes = [
        ("demux", ["udp => 1", "udp => 1"], "ip => 2", [100.0, 100.0]),
        ("strsearch", ["n=", "n="], "zzz", [100.0, 0.0]),
    ];
    for (class, [one, other], more, expected) in nodes {
        let text = |last: &str| {
            format!("(frames) > {{n}}({class},\"{one}\",expression=\"{other}\"{last})")
        };
        let (mut engine, handle) = GraphHandle::start(&[&text("")], endless()).unwrap();
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let ended = std::sync::Arc::clone(&stop);
        let running = std::thread::spawn(move || {
            engine.run(&ended).unwrap();
            engine.view()
        });
        let seen = || handle.view().node("n").map_or(0, |node| node.counts.arrived);
        while seen() < 100 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        handle.set(&text(&format!(",expression=\"{more}\""))).unwrap();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let view = running.join().unwrap();
        let counters = &view.node("n").unwrap().counters;
        assert_eq!([counters[0].value, counters[1].value], expected, "{class}: {counters:?}");
    }
}

/// The frames of [`classes`], and then none for as long as the graph runs.
fn endless() -> Classes {
    struct Quiet(MemorySource);
    impl fyke_capture::Source for Quiet {
        fn interfaces(&self) -> &[fyke_capture::Interface] {
            self.0.interfaces()
        }
        fn next(&mut self) -> Result<fyke_capture::Next<'_>, fyke_capture::ReadError> {
            match self.0.next()? {
                fyke_capture::Next::End => {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                    Ok(fyke_capture::Next::Idle)
                }
                next => Ok(next),
            }
        }
        fn stats(&mut self) -> fyke_capture::SourceStats {
            self.0.stats()
        }
    }
    let mut classes = classes();
    let open: fyke_graph::node::Open = |_| {
        let mut source = MemorySource::new(LinkType::RAW);
        for _ in 0..100 {
            let mut bytes =
                vec![0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 1, 1];
            bytes.extend([0, 1, 0, 53, 0, 10, 0, 0]);
            bytes.extend(b"n=");
            source.push(&Frame::new(LinkType::RAW, &bytes));
        }
        source.repeat(1);
        Ok(Box::new(Quiet(source)))
    };
    classes.register(Class { name: "frames", kind: Kind::Source, open, ..Class::NODE });
    classes
}

#[test]
fn cutting_and_doubles() {
    assert_eq!(counter("(snap,28) > (bytecount)", "captured_bytes"), 2800.0);
    assert_eq!(counter("(snap,28) > (bytecount)", "bytes"), 3190.0);
    assert_eq!(passed("(dedup)"), 100);
    // After the cut, only the IP header is left: five sources and two lengths. Frames 5 apart (50 ms) are equal.
    assert_eq!(passed("(snap,20) > (dedup,1000)"), 10);
    assert_eq!(passed("(snap,20) > (dedup,1)"), 100);
    assert_eq!(passed("(snap,20) > (dedup,1000,memory=1)"), 100);
}

#[test]
fn a_written_file_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["out.pcap", "out.pcapng"] {
        let path = folder.path().join(name);
        let path = path.to_str().unwrap();
        let view = run(&format!("(bpf,\"src host 10.0.0.3\") > (tofile,\"{path}\",limit=15)"));
        assert_eq!(view.nodes.last().unwrap().counts.passed, 20);
        let read = format!("(pcapin,\"{path}\") > (packetcount)");
        let (mut engine, _) = GraphHandle::start(&[&read], classes()).unwrap();
        engine.run(&AtomicBool::new(false)).unwrap();
        assert_eq!(engine.view().nodes[1].counts.passed, 15);
    }
}

#[test]
fn more_statistics() {
    // 100 frames, 10 ms apart, are one burst or a hundred.
    assert_eq!(counter("(burst,10000)", "most_frames"), 100.0);
    assert_eq!(counter("(burst,10000)", "longest_ns"), 99e7);
    assert_eq!(counter("(burst,9999)", "bursts"), 100.0);
    // 990 ms in intervals of 100 ms: ten intervals of ten frames.
    assert_eq!(counter("(bucket,100,kept=3)", "packets_2_ago"), 10.0);
    let view = run("{b}(bucket,100,kept=3,mbufsize=24)");
    let memory = &view.node("b").unwrap().memory;
    assert_eq!((memory.get(0), memory.get(1), memory.get(2)), (10, 10, 10));
    assert_eq!(counter("(distribution,step=1,min=31,max=40)", "from_31"), 10.0);
    assert_eq!(counter("(distribution,step=1,min=31,max=31)", "above"), 90.0);
    assert_eq!(counter("(distribution,gap,step=10000,max=100000)", "from_10000"), 99.0);
    assert_eq!(counter("(field,sourceport) > (dist,class,step=1,max=3)", "from_2"), 25.0);
}

#[test]
fn bloom_never_stops_what_matches() {
    assert_eq!(passed("(bloom,\"ip=10.0.0.3\")"), 20);
    assert_eq!(passed("(bloom,\"ip=10.0.0.3\",expression=\"port=53\")"), 100);
    assert_eq!(passed("(bloom,\"ip=10.0.0.3\",negative=y)"), 80);
    assert_eq!(passed("(bloom,\"ip=10.9.0.3,port=53,proto=udp\")"), 0);
}

/// The sizes of the arrays are parameters, and the rate of false positives follows them.
#[test]
fn bloom_arrays_have_the_sizes_of_the_text() {
    let rate = |sizes: &str| {
        let rate = "largest_false_positive_rate";
        counter(&format!("(bloom,\"ip=10.0.0.3\",expression=\"ip=10.0.0.9\",{sizes})"), rate)
    };
    let expected = |bits: f64, hashes: f64| (1.0 - (-2.0 * hashes / bits).exp()).powf(hashes);
    assert!((rate("bits=64") / expected(64.0, 2.0) - 1.0).abs() < 1e-6);
    assert!(
        (rate("bits=640,pairs=2,prefixes=\"ip/32\"") / expected(640.0, 4.0) - 1.0).abs() < 1e-6
    );
    for (sizes, why) in [
        ("bits=63", "from 64 to"),
        ("bits=\"536870912\"", "more than 64 MiB"),
        ("pairs=3", "from 1 to 2"),
        ("prefixes=\"ip/24\"", "ip/24 only"),
        ("prefixes=\"ip/40\"", "found `ip/40`"),
        ("prefixes=\"ip/32,ip6/64\",arrays=2", "one more than the lengths"),
    ] {
        let text = format!("(frames) > (bloom,\"ip=10.0.0.3\",{sizes})");
        let error = GraphHandle::start(&[&text], classes()).map(drop).unwrap_err().to_string();
        assert!(error.contains(why), "{sizes}: {error}");
    }
}

#[test]
fn tables_give_class_values() {
    let table =
        "(table,key=\"src sport\",expression=\"10.0.0.3 3 = 7\",expression=\"10.0.0.4 0=8\"";
    assert_eq!(passed(&format!("{table})")), 10);
    assert_eq!(passed(&format!("{table}) -7-> (packetcount)")), 5);
    assert_eq!(passed(&format!("{table},default=9) -9-> (packetcount)")), 90);
    assert_eq!(passed("(table,key=proto,expression=\"udp = 1\")"), 100);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows");
    std::fs::write(&file, "# ports\n3 = 1\n2 = 2\n").unwrap();
    let of_file = format!("(table,key=sport,file=\"{}\")", file.to_str().unwrap());
    assert_eq!(passed(&of_file), 50);
}

#[test]
fn machines_run_programs_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // The source port is at byte 20 of these frames, because they begin with the IP header.
    let three = write("three.bpf", "begin\n ldh P[20]\n jeq #3, Y, N\nY: ret #ALL\nN: ret #0\n");
    let port = write("port.bpf", "begin\n ldh P[20]\n jeq #port, Y, N\nY: ret #ALL\nN: ret #0\n");
    assert_eq!(passed(&format!("(mpf,\"{three}\",isa=bpf)")), 25);
    let both = format!("(mpf,\"{three}\",expression=\"{port}\",isa=bpf,define=\"port=2\")");
    assert_eq!(passed(&both), 50);
    assert_eq!(passed(&format!("{both} -2-> (packetcount)")), 25);
    let stack = write("two.cspf", "PUSHWORD+10\nPUSHLIT | EQ #2\n");
    assert_eq!(passed(&format!("(cspf,\"{stack}\")")), 25);
}

#[test]
fn ruler_judges_and_rewrites() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.rul");
    let text = "filter f\n  * \"n=1\" => accept 5;\n";
    std::fs::write(&file, text).unwrap();
    let node = format!("(ruler,\"{}\")", file.to_str().unwrap());
    assert_eq!(passed(&format!("{node} -5-> (packetcount)")), 1);
    std::fs::write(&file, "filter f\n  * \"n=1\" => accept 70000;\n").unwrap();
    assert_eq!(passed(&format!("{node} -70000-> (packetcount)")), 1);
    assert_eq!(passed(&format!("{node} -65535-> (packetcount)")), 0);
    // The 28 bytes of the headers stay, and `n=7` becomes two bytes: the frame is taken and emitted shorter.
    let text = "filter f\n  a:.#28 \"n=7\" => a \"ok\";\n  * \"n=8\" => accept;\n";
    std::fs::write(&file, text).unwrap();
    let view = run(&format!("{{r}}{node} > {{b}}(bytecount) > {{s}}(strsearch, ok, offset=28)"));
    let counts = view.node("r").unwrap().counts;
    assert_eq!((counts.taken, counts.emitted, counts.passed, counts.rejected), (1, 1, 1, 98));
    assert_eq!(view.node("b").unwrap().counters[0].value, 30.0 + 31.0);
    assert_eq!(view.node("s").unwrap().counts.passed, 1);
}

#[test]
fn sockets_get_datagrams() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let unix = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let text = format!(
        "[(tosocket,\"unix:{}\") | {{u}}(tosocket,\"udp:{}\")]",
        path.to_str().unwrap(),
        udp.local_addr().unwrap()
    );
    let view = run(&format!("(filter,\"src host 10.0.0.3\") > (sampler,4) > {text}"));
    assert_eq!(view.node("u").unwrap().counters[0].value, 5.0);
    let mut bytes = [0; 100];
    for socket in [unix.recv(&mut bytes).unwrap(), udp.recv(&mut bytes).unwrap()] {
        assert_eq!(socket, 31);
    }
    assert_eq!(&bytes[28..31], b"n=3");
}

/// A graph that is refused has not emptied the file that it would have written.
#[test]
fn a_refused_graph_leaves_files_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept.pcap");
    std::fs::write(&path, "precious").unwrap();
    let path = path.to_str().unwrap();
    let text = format!("(frames) > (tofile,\"{path}\") > (tointerface,nowhere9)");
    assert!(GraphHandle::start(&[&text], classes()).is_err());
    assert_eq!(std::fs::read(path).unwrap(), b"precious");
}

/// The values of `live` of the filters of a plan.
fn live(texts: &[&str]) -> Vec<bool> {
    let plan = Plan::new(texts, &Classes::new()).unwrap();
    let filters = plan.nodes.iter().filter(|node| node.class.filters.is_some());
    filters.map(|node| node.settings.flag("live").unwrap()).collect()
}

#[test]
fn a_filter_is_read_as_its_sources_are() {
    assert_eq!(live(&["(device, lo) > (bpf, inbound) > (drop)"]), [true]);
    assert_eq!(live(&["(device, lo) > (bloom) > (demux, \"udp => 1\") > (drop)"]), [true]);
    assert_eq!(live(&["(pcapin, a.pcap) > (bpf, udp) > (drop)"]), [false]);
    assert_eq!(live(&["[(device, lo) | (pcapin, a.pcap)] > (bpf, udp) > (drop)"]), [false]);
    assert_eq!(live(&["[(device, lo) | (device, eth0)] > (bpf, udp) > (drop)"]), [true]);
    assert_eq!(live(&["(device, lo) > (bpf, udp, live=n) > (drop)"]), [false]);
    assert_eq!(live(&["(device, lo) > (bpf, udp, live=) > (drop)"]), [true]);
    assert_eq!(live(&["(pcapin, a.pcap) > (bpf, udp, live=y) > (drop)"]), [true]);
}

#[test]
fn a_source_in_a_later_place_counts() {
    let file = "(pcapin, a.pcap) > {f}()";
    assert_eq!(live(&["(device, lo) > {f}(bpf, udp) > (bpf, tcp) > (drop)", file]), [false; 2]);
    let one_text = "[(device, lo) > {f}(bpf, udp) > (drop)] | [(pcapin, a.pcap) > {f}()]";
    assert_eq!(live(&[one_text]), [false]);
}

#[test]
fn equal_texts_are_one_node_with_the_default_or_without() {
    let after = |live: &str| format!("(device, lo) > (bpf, udp{live}) > (drop)");
    let plan = |texts: &[&str]| Plan::new(texts, &Classes::new()).unwrap().nodes.len();
    assert_eq!(plan(&[&after(""), &after(", live=y")]), 3);
    assert_eq!(plan(&[&after(""), &after(", live=n")]), 5);
}
