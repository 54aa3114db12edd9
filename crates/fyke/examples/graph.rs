//! A monitor as a graph: a file, two filters side by side, counters, an edit of one filter.

use fyke::Error;
use fyke::graph::{Classes, GraphHandle};
use std::sync::atomic::AtomicBool;

fn main() -> Result<(), Error> {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/readme/ftp.pcapng");
    let text = format!(
        "{{file}}(pcapin, expression=\"{trace}\")
             > [{{control}}(bpf, expression=\"tcp port 21\") | {{rest}}(bpf, expression=\"not tcp port 21\")]
             > {{all}}(packetcount)"
    );
    // Another graph joins: it shares the source with the first.
    let other =
        format!("(pcapin, expression=\"{trace}\") > {{big}}(bpf, expression=\"greater 1000\")");
    let (mut engine, handle) = GraphHandle::start(&[&text, &other], Classes::new())?;
    // Any thread may do this while the graph runs; `handle` adds and removes whole texts.
    let control = engine.filters("control").expect("the tag of a filter");
    control.set("tcp port ftp")?;
    engine.run(&AtomicBool::new(false))?;

    let view = handle.view();
    for node in &view.nodes {
        assert!(node.counts.is_exact(), "arrived = passed + rejected + taken + lost");
        println!(
            "{:8} arrived {:5} passed {:5}",
            node.name, node.counts.arrived, node.counts.passed
        );
    }
    let counts = |name| view.node(name).expect("a tag of the text").counts;
    let file = counts("file").passed;
    assert!(file > 0 && counts("all").arrived == file);
    assert_eq!(counts("control").passed + counts("rest").passed, file);
    assert_eq!(counts("big").arrived, file);
    Ok(())
}
