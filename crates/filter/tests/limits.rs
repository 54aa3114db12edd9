//! Texts of any length and shape: long ones are fast, deep ones are an error or no problem, and nothing overflows
//! the stack or panics.

use fyke_filter::{MAX_NESTING, MAX_TEXT_LEN, Options, compile};
use fyke_frame::{Frame, LinkType};
use std::time::{Duration, Instant};

/// The small stack of a thread in a larger program.
const STACK: usize = 1 << 20;

fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(work);
    thread.expect("a thread starts").join().expect("the work ends without a panic");
}

fn hosts(count: u32) -> String {
    let host =
        |number: u32| format!("host 10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255);
    (0..count).map(host).collect::<Vec<_>>().join(" or ")
}

#[test]
fn ten_thousand_hosts() {
    let text = hosts(10_000);
    let start = Instant::now();
    let predicate = compile(&text, &Options::default()).expect("the text is right");
    let elapsed = start.elapsed();
    println!("10,000 hosts, {} bytes of text: {elapsed:?}", text.len());
    // Ten times what an unoptimised build needs, for busy machines.
    assert!(elapsed < Duration::from_millis(500), "{elapsed:?}");
    assert_eq!(predicate.root().children().len(), 10_000);
    let mut bytes = [0; 34];
    (bytes[12], bytes[30], bytes[33]) = (8, 10, 77);
    assert!(predicate.accepts(&Frame::new(LinkType::EN10MB, &bytes)));
    bytes[30] = 11;
    assert!(!predicate.accepts(&Frame::new(LinkType::EN10MB, &bytes)));
}

#[test]
fn and_and_or_in_turns_make_a_deep_tree_that_is_no_problem() {
    on_a_small_stack(|| {
        let text = format!("ip{}", " and tcp or udp".repeat(50_000));
        let predicate = compile(&text, &Options::default()).expect("the text is right");
        assert_eq!(predicate.root().depth(), 100_001);
        assert!(!predicate.accepts(&Frame::new(LinkType::EN10MB, &[0; 64])));
        assert!(predicate == predicate.clone());
        assert_eq!(predicate.root().primitives().count(), 100_001);
        // The canonical text has a bracket for each level, which is more than the parser accepts.
        let again = compile(&predicate.to_string(), &Options::default());
        assert!(again.unwrap_err().message().contains("brackets"));
    });
}

#[test]
fn brackets_up_to_the_limit_and_no_further() {
    on_a_small_stack(|| {
        let nested = |depth: usize| format!("{}ip{}", "(".repeat(depth), ")".repeat(depth));
        assert!(compile(&nested(MAX_NESTING), &Options::default()).is_ok());
        for depth in [MAX_NESTING + 1, 10_000, 1_000_000] {
            let error = compile(&nested(depth), &Options::default()).unwrap_err();
            assert!(error.message().contains("brackets"), "{error}");
            assert_eq!(error.span().start, MAX_NESTING);
        }
        let mixed = format!("port {}80{}", "(not ".repeat(300), ")".repeat(300));
        assert!(compile(&mixed, &Options::default()).is_ok());
        assert!(compile(&format!("{}ip", "! ".repeat(100_001)), &Options::default()).is_ok());
    });
}

#[test]
fn byte_expressions_are_limited_too() {
    on_a_small_stack(|| {
        let expressions: [fn(usize) -> String; 6] = [
            |depth| format!("{}1{} = 1", "(".repeat(depth), ")".repeat(depth)),
            |depth| format!("{}1{} = 1", "ip[".repeat(depth), "]".repeat(depth)),
            |depth| format!("1{} = ip[0]", " + 1".repeat(depth)),
            |depth| format!("1{} = ip[0]", " ^ 1".repeat(depth)),
            |depth| format!("{}1 = ip[0]", "- ".repeat(depth)),
            |depth| format!("1 = ip[{}0{}]", "(-".repeat(depth), ")".repeat(depth)),
        ];
        for expression in expressions {
            let small = compile(&expression(10), &Options::default());
            assert!(small.is_ok() || small.unwrap_err().message().contains("no frame"));
            for depth in [100, 450, 1_000, 100_000] {
                // The result may be right or an error, but parsing must end.
                if let Err(error) = compile(&expression(depth), &Options::default()) {
                    assert!(!error.message().is_empty());
                }
            }
        }
        let deep = compile(&format!("1{} = ip[0]", " + 1".repeat(1_000)), &Options::default());
        assert!(deep.unwrap_err().message().contains("levels"));
    });
}

#[test]
fn too_long_a_text_is_refused() {
    let text = " ".repeat(MAX_TEXT_LEN + 1);
    assert!(compile(&text, &Options::default()).unwrap_err().message().contains("limit"));
    assert!(compile(&text[1..], &Options::default()).is_ok());
}

#[test]
fn texts_that_are_long_but_not_hosts() {
    for (part, joint) in [
        ("tcp port 80", " or "),
        ("not src net 10.1.0.0/16", " and "),
        ("ip6 host 2001:db8::1", " or "),
        ("tcp[tcpflags] & tcp-syn != 0", " or "),
        ("(host 1.2.3.4 and port 5)", " or "),
        ("ether host 00:11:22:33:44:55", " or "),
    ] {
        let text = vec![part; 10_000].join(joint);
        let start = Instant::now();
        compile(&text, &Options::default()).expect("the text is right");
        // Normally a fraction of a second; the limit is generous for busy machines.
        assert!(start.elapsed() < Duration::from_secs(20), "{part}: {:?}", start.elapsed());
    }
}
