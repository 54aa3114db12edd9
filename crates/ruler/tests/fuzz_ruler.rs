//! Broken texts: every text is a program or an error with a location, within a bounded time. A program that is
//! small enough for the oracle gives the oracle's answers. This is the bounded twin of the fuzz target.

use fyke_ruler::anonymise::Anonymiser;
use fyke_ruler::{ANONYMISE, LAYOUTS, Limits, Program, Ruler};
use fyke_testkit::random::Random;

#[path = "../../../fuzz/checks/ruler.rs"]
mod ruler;

const SAMPLES: [&str; 5] = [
    "filter a \"ABC\" => accept 1; \"A\" * \"B\"i ** [a-c]{2,3}? => accept 2; * => reject;",
    "filter b start:(\"aaa\") * middle:(\"ZZ\" * \"ZZ\") end:(*) => end start \"-\" middle 7~2 0#3;",
    "layout L = n:. d:bytes(n*4+1, max 9) bits(x:4=3 y:4);\nfilter c l:L p:* => l with [d=zero(d)] p;",
    "filter d for EN10MB: a:.#6 (b\"01..1...\" | 80~2 | 10.0.0.0/8 | 1..300~2) r:* => mac(a) e(r) fix checksums;\n\
     filter e \"\" => accept; x:. r:* => fill(x, \"q\") e(r);",
    "include \"layouts.rli\"\nfilter www eh:Ethernet_IPv4 ih:IPv4_TCP th:TCP with [dest=80~2] p:* =>\n\
     eh with [e_dest=0#6] ih with [src=0~4] th p fix lengths checksums;",
];

const PARTS: [&str; 24] = [
    "filter ",
    "layout ",
    " => ",
    ";",
    "\"",
    "*",
    "{",
    "}",
    "{0,}",
    "{65535}",
    "(",
    ")",
    "[",
    "]",
    "|",
    "~",
    "#",
    "with",
    "..",
    "x\"",
    "b\"",
    "4294967296",
    ":",
    "\\",
];

fn broken(random: &mut Random) -> String {
    let mut text = random.pick(&SAMPLES).as_bytes().to_vec();
    for _ in 0..1 + random.below(2) {
        let at = random.below(text.len() + 1);
        match random.below(5) {
            0 if at < text.len() => drop(text.remove(at)),
            1 => text.truncate(at.max(8)),
            2 if at < text.len() => text[at] = random.number() as u8,
            3 => {
                let other = random.pick(&SAMPLES).as_bytes();
                let from = random.below(other.len());
                let to = (from + random.below(30)).min(other.len());
                text.splice(at..at, other[from..to].iter().copied());
            }
            _ => drop(text.splice(at..at, random.pick(&PARTS).bytes())),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn every_text_is_a_program_or_an_error() {
    let (mut random, seed) = Random::seeded(77);
    let (mut programs, mut errors, mut compared) = (0, 0, 0);
    for number in 0..5_000 {
        let mut data = broken(&mut random).replace('\0', " ").into_bytes();
        let text = data.len();
        for _ in 0..4 {
            data.truncate(text);
            data.push(0);
            let bytes = b"aAbBcCZ\x00\x08\x45\x06\xff-\n";
            data.extend((0..random.below(24)).map(|_| random.pick(bytes)));
            let (is_program, more) = ruler::texts(&data);
            compared += more;
            if !is_program {
                errors += 1;
                break;
            }
            programs += 1;
        }
        if number % 1_000 == 0 {
            println!("seed {seed}: {number} texts");
        }
    }
    println!("{programs} runs of programs, {errors} errors, {compared} answers compared");
    assert!(programs > 100 && errors > 1_000 && compared > 500);
}

/// Runs packets of every kind through the anonymising rule set: no panic, no length changes, no packet passes
/// unchanged.
#[test]
fn every_packet_gets_an_answer_from_the_reviewed_rules() {
    assert!(LAYOUTS.contains("layout"));
    let program = Program::from_text(ANONYMISE).unwrap_or_else(|error| panic!("{error}"));
    let anonymiser = Anonymiser::new(&[7; 32], &[8; 16]);
    let mut ruler = Ruler::new(program, Limits::default(), anonymiser).expect("within limits");
    let (mut random, seed) = Random::seeded(78);
    let roots = ruler.program().roots();
    let mut out = Vec::new();
    for number in 0..2_000 {
        let mut packet = b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x08\x00\x45\0\x00\x60\0\0\0\0\x40\x11\0\0\
            \x0a\0\0\x01\x0a\0\0\x02\x00\x35\x30\x39\x00\x30\0\0\x12\x34\x81\x80\0\x01\0\x01\0\0\0\0\
            \x03www\x07example\0\0\x01\0\x01\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x01\x02\x03\x04"
            .to_vec();
        for _ in 0..random.below(6) {
            let at = random.below(packet.len());
            packet[at] = random.number() as u8;
        }
        packet.truncate(random.below(packet.len() + 1));
        if random.chance(40) {
            packet.resize(65_535, random.number() as u8);
        }
        for root in &roots {
            let (verdict, _) = ruler.run(*root, &packet, fyke_frame::LinkType::EN10MB, &mut out);
            let what = format!("seed {seed}, packet {number}: {verdict}");
            assert!(!matches!(verdict, fyke_ruler::Verdict::Accept(_)), "{what}");
            assert!(!verdict.passes() || out.len() == packet.len(), "{what}");
        }
    }
}
