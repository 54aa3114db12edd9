//! The checks of the fuzz targets `serve_packets`, `serve_policy`, `serve_graphs` and `serve_saved` on seeded input:
//! requests, policies, graphs and states, most of them damaged.

use fyke_testkit::random::Random;

#[path = "../../../fuzz/checks/serve.rs"]
mod checks;

const REQUESTS: [&str; 6] = [
    r#"{"request":"hello","versions":[1,2],"program":"x"}"#,
    r#"{"request":"open","texts":[{"id":1,"text":"udp"}],"snaplen":96}"#,
    r#"{"request":"edit","remove":[1],"add":[{"id":2,"text":"host 10.0.0.1 or \"\\u00e4\""}]}"#,
    r#"{"request":"counts","read":18446744073709551615,"lost":0}"#,
    r#"{"request":"pause"}"#,
    r#"{"request":"end"}"#,
];

const POLICY: &str = "[[rule]]\nusers = [1, 1000]\ngroups = [7]\ninterfaces = [\"eth0\", \"eth1\"]\n\
                      filter = \"udp\"\nsnaplen = 96\nshare = \"group\"\n\n[[rule]]\nusers = [2]\n\
                      texts = 5\ntext_bytes = 100\nreaders = 3\nmemory_mib = 8\n";

fn damage(random: &mut Random, bytes: &mut Vec<u8>, times: usize) {
    for _ in 0..times {
        let at = random.below(bytes.len().max(1));
        match random.below(4) {
            0 if !bytes.is_empty() => bytes[at] = random.number() as u8,
            1 if !bytes.is_empty() => drop(bytes.remove(at)),
            2 => bytes.truncate(at),
            _ => bytes.insert(at.min(bytes.len()), random.below(128) as u8),
        }
    }
}

#[test]
fn packets_of_any_bytes() {
    let (mut random, seed) = Random::seeded(20);
    println!("seed {seed}");
    let mut requests = 0;
    for _ in 0..4_000 {
        let mut data = (random.below(4_000) as u16).to_le_bytes().to_vec();
        for _ in 0..random.below(8) {
            let mut message = random.pick(&REQUESTS).as_bytes().to_vec();
            if random.chance(2) {
                let times = 1 + random.below(3);
                damage(&mut random, &mut message, times);
            }
            message.push(b'\n');
            let size = 1 + random.below(message.len());
            for packet in message.chunks(size) {
                data.extend((packet.len() as u16).to_le_bytes());
                data.extend(packet);
            }
        }
        requests += checks::packets(&data);
    }
    assert!(requests > 2_000, "{requests}");
}

#[test]
fn policies_of_any_text() {
    let (mut random, seed) = Random::seeded(21);
    println!("seed {seed}");
    let mut policies = 0;
    for _ in 0..4_000 {
        let mut bytes = POLICY.as_bytes().to_vec();
        let times = random.below(4);
        damage(&mut random, &mut bytes, times);
        policies += usize::from(checks::policy(&String::from_utf8_lossy(&bytes)));
    }
    assert!(policies > 500, "{policies}");
}

const GRAPHS: [&str; 6] = [
    "(filter, udp port 5001, live=y) > (sampler, 10)",
    "[(sampler,2) | (strsearch,abc)] > (packetcount) # both",
    "(tofile, /tmp/x)",
    "{a}(sampler,2) > {a} > (dedup)",
    "{capture}(sampler,3)",
    "!(filter, tcp) > (limit, 1)",
];

#[test]
fn graphs_of_any_text() {
    let (mut random, seed) = Random::seeded(20);
    println!("seed {seed}");
    let mut permitted = 0;
    for _ in 0..3_000 {
        let mut text = random.pick(&GRAPHS).as_bytes().to_vec();
        if random.chance(2) {
            let times = 1 + random.below(4);
            damage(&mut random, &mut text, times);
        }
        permitted += usize::from(checks::graph(&String::from_utf8_lossy(&text)));
    }
    assert!((300..2_500).contains(&permitted), "{permitted}");
    assert!(GRAPHS[2..].iter().filter(|text| checks::graph(text)).count() < 2);
}

#[test]
fn states_of_any_bytes() {
    let (mut random, seed) = Random::seeded(20);
    println!("seed {seed}");
    let text = r#"{"version":2,"slot":1,"program":"x","snaplen":0,"texts":[{"id":1,"text":"udp"}],"graph":null,
        "is_paused":false,"meter":{"since":null,"evaluated":3,
        "elsewhere":{"below":1,"is_partial":false,"dropped":0}}}"#;
    let whole: Vec<u8> = [16, text.len() as u64].into_iter().flat_map(u64::to_le_bytes).collect();
    let whole = [whole, text.as_bytes().to_vec()].concat();
    assert!(checks::saved(&whole));
    for _ in 0..500 {
        let mut bytes = whole.clone();
        let times = 1 + random.below(4);
        damage(&mut random, &mut bytes, times);
        checks::saved(&bytes);
    }
    assert!(!checks::saved(b""));
}
