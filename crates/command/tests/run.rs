//! `fyke run` in typical use: counts of a file, drawings, refusals, TOML.

use fyke_testkit::corpus::Corpus;
use std::process::{Command, Output};

fn fyke(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fyke")).args(args).output().unwrap()
}

fn out(args: &[&str]) -> String {
    let output = fyke(args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}\n{error}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_file_is_counted_as_dump_counts_it() {
    for path in Corpus::open().busy() {
        counted_as_dump_counts(path.to_str().unwrap());
    }
}

fn counted_as_dump_counts(path: &str) {
    for text in ["udp", "tcp port 443", "vlan and ip6"] {
        let dump = out(&["dump", "-r", path, "--count", text]);
        let graph =
            format!("(pcapin,\"{path}\") > {{f}}(bpf,\"{text}\") > {{n}}(packetcount,export)");
        assert_eq!(out(&["run", &graph]), format!("n\tpackets\t{dump}"), "{text}");
        let other = format!("(PCAP,\"{path}\") > !(filter,\"{text}\") > {{n}}(packetcount,export)");
        let both = format!("{graph};\n{}", other.replace("{n}", "{m}"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), both).unwrap();
        let rest = 4096 - dump.trim().parse::<u64>().unwrap();
        let counts = out(&["run", "-f", file.path().to_str().unwrap()]);
        let (n, m) = (format!("n\tpackets\t{dump}"), format!("m\tpackets\t{rest}\n"));
        assert!(counts.contains(&n) && counts.contains(&m), "{text}: {counts}");
    }
}

#[test]
fn check_and_drawings_open_nothing() {
    let graph = "(device, expression = nowhere7) > [(bpf,udp) & !(sampler,2)] > (packetcount)";
    let check = out(&["run", "--check", graph]);
    assert!(check.starts_with("(device, expression=nowhere7) > [(bpf, expression=udp) & !(samp"));
    assert!(check.contains("(and)  from bpf & sampler"), "{check}");
    assert!(out(&["run", "--dot", graph]).contains("n0 -> n1;"));
    let drawn = out(&["run", "--svg", "-", graph]);
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"), "{drawn}");
    assert_eq!(fyke(&["run", "--svg", "-", "--live-svg", graph]).status.code(), Some(2));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("graph.svg");
    out(&["run", "--svg", file.to_str().unwrap(), graph]);
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("packetcount"));
    let running = fyke(&["run", graph]);
    assert_eq!(running.status.code(), Some(1));
}

#[test]
fn wrong_graphs_exit_with_2_and_show_the_place() {
    let output = fyke(&["run", "--check", "(pcapin,x) > (packetcont)"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("^^^^^^^^^^") && error.contains("did you mean \"packetcount\"?"));
    assert_eq!(fyke(&["run"]).status.code(), Some(2));
    assert_eq!(fyke(&["run", "(pcapin,/nowhere) > (drop)"]).status.code(), Some(1));
}

#[test]
fn the_check_tells_where_each_filter_and_rule_runs() {
    let chain = "(device,eth0) > {a}(filter,udp) > {b}(filter,port 5001) > {c}(demux,\"ip => 1\")";
    let counted = out(&["run", "--count-all", "--check", chain]);
    assert!(
        counted.contains("in user space only") && !counted.contains("in the kernel"),
        "{counted}"
    );
    let check = out(&["run", "--check", chain]);
    let placed = "a, b: in the kernel, too, if it can filter there\n\
                  c: in user space only: a filter before it counts the frames that it accepts, and \
                  c has no texts that can be edited\n";
    assert!(check.ends_with(placed), "{check}");
    // The kernel sees whole frames, so it cannot count for filters that see a part.
    let cut = out(&["run", "--check", &chain.replace("eth0", "eth0,snaplen=60")]);
    assert!(cut.contains("b: in user space only") && cut.contains("the first 60 bytes"), "{cut}");
    let twice = fyke(&["run", "--check", "(device,eth0) > (filter,udp,expression=tcp)"]);
    assert_eq!(twice.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&twice.stderr).contains("one expression"));
    let own = out(&["run", "--check", "(device,eth0) > (bloom,\"port=80\",own=y) > (filter,udp)"]);
    assert!(own.contains("\nbloom: its rules in user space only: own=y\n"), "{own}");
    assert!(own.ends_with("bpf: in the kernel, too, if it can filter there\n"), "{own}");
}

#[test]
fn nodes_for_outgoing_frames_are_refused_after_a_source_of_incoming_ones() {
    for (graph, reason) in [
        ("(device,xdp:eth0) > (filter,outbound)", "this capture gets incoming frames only"),
        ("(device,xdp:eth0) > (packetcount) > (filter,udp or outbound)", "-i IF"),
        ("(device,xdp:eth0:1) > (accept,direction=out)", "`xdp:IF` captures incoming frames only"),
        ("(device,xdp:eth0) > (demux,\"outbound => 1\")", "incoming frames only"),
    ] {
        let output = fyke(&["run", "--check", graph]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{graph}: {said}");
        assert!(said.contains(reason) && said.contains('^'), "{graph}: {said}");
    }
    for graph in [
        "(device,eth0) > (filter,outbound)",
        "(device,xdp:eth0) > (accept,direction=in) > (filter,inbound)",
        "[(device,xdp:eth0) | (device,eth1)] > (filter,outbound)",
    ] {
        out(&["run", "--check", graph]);
    }
}

#[test]
fn toml_is_the_same_graph() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("graph.toml");
    let text = "[[node]]\ntag='in'\nclass='pcapin'\nexpression='a.pcap'\n\n[[node]]\ntag='n'\n\
                class='packetcount'\nexport=true\nfrom=['in']\n";
    std::fs::write(&file, text).unwrap();
    let check = out(&["run", "--check", "-f", file.to_str().unwrap()]);
    assert!(check.contains("(packetcount, export=y)  {n}  from in  exported"), "{check}");
    for (bad, part) in [
        ("", "no node"),
        ("[[node]]\nclass='x'", "node 1 has no tag"),
        ("[[node]]\ntag='a'\nclass='x'\nfrom=3", "not a list"),
        ("[[node]]\ntag='a'\nclass='x'\nfrom=['a}(']", "not a tag"),
        ("[[node]\n", "line 1"),
        ("edge=3", "\"edge\" is not known"),
    ] {
        std::fs::write(&file, bad).unwrap();
        let output = fyke(&["run", "--check", "-f", file.to_str().unwrap()]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains(part), "{bad}: {error}");
    }
}

/// An error in a long graph shows the text around its position, marks omitted text with `…`, and names the unreachable
/// node.
#[test]
fn an_excerpt_says_where_it_is_cut_and_a_socket_its_name() {
    let many = vec!["(filter,udp)"; 20].join(" > ");
    let graph = format!("(pcapin,in.pcap) > {many} > (nonsense) > {many}");
    let output = fyke(&["run", "--check", &graph]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut lines = said.lines().skip(1);
    let (line, carets) = (lines.next().unwrap(), lines.next().unwrap());
    assert!(line.starts_with("  …") && line.ends_with('…'), "{said}");
    let at = carets.find('^').unwrap();
    let marked: String = line.chars().skip(at).take(carets.matches('^').count()).collect();
    assert!(marked.contains("nonsense"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.pcap");
    std::fs::write(&file, fyke_testkit::pcap::file(1, &[vec![0; 60]])).unwrap();
    let words = ["demux", "-r", file.to_str().unwrap(), "udp => unix:/nobody-is-here"];
    let output = fyke(&words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("unix:/nobody-is-here: No such file or directory"), "{said}");
}
