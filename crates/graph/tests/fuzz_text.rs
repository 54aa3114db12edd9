//! Hostile texts: for every input, the language and the planner return a graph, or an error with its position.
//!
//! The bounded, seeded version of `fuzz/fuzz_targets/graph_text.rs` and `graph_toml.rs`: texts from a grammar with
//! omissions, and mutations of valid texts.

#[path = "../../../fuzz/checks/graph.rs"]
mod checks;

use fyke_graph::{Classes, Plan};
use fyke_testkit::random::Random;
use std::time::{Duration, Instant};

const PIECES: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ">",
    "->",
    "-80->",
    "-",
    "|",
    "&",
    "!",
    ",",
    "=",
    "\"",
    "'",
    "\\",
    " ",
    "\n",
    "#",
    ";",
    "é",
    "\u{201c}",
    "\0",
    "device",
    "pcapin",
    "filter",
    "accept",
    "limit",
    "sampler",
    "tofile",
    "packetcount",
    "strsearch",
    "table",
    "mpf",
    "nonsense",
    "expression",
    "export=y",
    "mbufsize=8",
    "mbufsize=99999999999",
    "key=\"src dst\"",
    "lookback=y",
    "duplicates=y",
    "identifier=a",
    "{a}",
    "{a}()",
    "{b}",
    "\"tcp port 80\"",
    "\"|41 4|\"",
    "0",
    "65535",
    "65536",
    "18446744073709551616",
    "(accept)",
    "(device,eth0)",
    "(pcapin,x)",
    " > ",
    " | ",
    "(filter,\"udp\")",
    "(limit,3)",
    "!(accept)",
    "[(accept) | (drop)]",
];

const GOOD: &[&str] = &[
    "(device, expression=eth0) > [(bpf, expression=\"tcp port 80\") | (sampler, expression=2)] > \
     {n}(packetcount, mbufsize=8, export=y)",
    "{s}(pcapin,x) > {f}(filter,\"udp\",lookback=y) > (limit,9) > [(print,nv) | (tofile,\"a b\")]",
    "(device,eth0) -> (BPF,\"udp\") | (BPF,\"tcp\") -> (bytecount,,8)",
    "{i}(pcapin,x) > {t}(table,key=\"dst dport\",expression=\"10.0.0.1 80 = 1\") -1-> (drop) | \
     [{t}() -2-> (topk,5)] | [{i}() > !{t}() > (debug)]",
];

const TOML: &str = "[[node]]\ntag='in'\nclass='pcapin'\nexpression='a b.pcap'\n\n[[node]]\n\
                    tag='n'\nclass='packetcount'\nmbufsize=8\nexport=true\nfrom=['in:80', 'in']\n";

/// Most time for one text, to detect a hang.
const PATIENCE: Duration = Duration::from_secs(5);

fn mutated(random: &mut Random, good: &str) -> String {
    let mut text: Vec<char> = good.chars().collect();
    for _ in 0..=random.below(4) {
        let at = random.below(text.len() + 1);
        let end = (at + random.below(6)).min(text.len());
        match random.below(4) {
            0 => drop(text.drain(at..end)),
            1 => {
                let piece = random.pick(PIECES);
                drop(text.splice(at..at, piece.chars()));
            }
            2 => {
                let copy: Vec<char> = text[at..end].to_vec();
                drop(text.splice(at..at, copy));
            }
            _ => {
                let other = random.below(text.len() + 1);
                if other < text.len() && at < text.len() {
                    text.swap(at, other);
                }
            }
        }
    }
    text.into_iter().collect()
}

#[test]
fn texts_from_pieces_and_mutations() {
    let (mut random, seed) = Random::seeded(11);
    let classes = Classes::new();
    for round in 0..4_000 {
        let what = format!("seed {seed}, round {round}");
        let text: String = match round % 2 {
            0 => (0..random.below(24)).map(|_| random.pick(PIECES)).collect(),
            _ => {
                let good = random.pick(GOOD);
                mutated(&mut random, good)
            }
        };
        println!("{what}: {text}");
        checks::text(&text, &classes);
    }
}

#[test]
fn toml_from_mutations() {
    let (mut random, seed) = Random::seeded(12);
    let classes = Classes::new();
    for round in 0..3_000 {
        let what = format!("seed {seed}, round {round}");
        let toml = mutated(&mut random, TOML);
        println!("{what}: {toml}");
        checks::toml(&toml, &classes);
    }
}

/// Refuses depth and length beyond the limits at once.
#[test]
fn huge_texts_are_refused() {
    let classes = Classes::new();
    for text in [
        "[".repeat(1 << 20),
        "!".repeat(1 << 20),
        "(accept) > ".repeat(1 << 16),
        "(accept) | ".repeat(1 << 16),
        format!("(accept, expression=\"{}\")", "a".repeat(1 << 24)),
        format!("({})", ",x=y".repeat(1 << 18)),
        "{".to_owned() + &"t".repeat(1 << 20),
    ] {
        let started = Instant::now();
        assert!(Plan::new(&[&text], &classes).is_err());
        assert!(started.elapsed() < PATIENCE, "{}…", text.chars().take(40).collect::<String>());
    }
}
