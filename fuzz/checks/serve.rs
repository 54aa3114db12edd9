//! Properties of what readers send to a service that hold for any input: shared by the fuzz targets and `cargo test`.
//!
//! Packets become messages within the limit, without a lost byte. A request that is read is written and read again to
//! the same request. A policy is read or refused with a line of the file. A graph is permitted or refused, and so is
//! the state that one process of a service leaves to the next.

use fyke_serve::Policy;
use fyke_serve::message::Request;
use fyke_serve::policy::{Names, Peer, Terms};
use fyke_serve::wire::{Assembler, Incoming};
use std::path::Path;

/// Checks packets: the first two bytes are the limit, then each packet begins with its length in two bytes. Returns the
/// number of requests that were read.
pub fn packets(data: &[u8]) -> usize {
    let Some((limit, mut rest)) = data.split_first_chunk::<2>() else { return 0 };
    let limit = usize::from(u16::from_le_bytes(*limit));
    let mut assembler = Assembler::new(limit);
    let (mut sent, mut requests) = (Vec::new(), 0);
    while let Some((len, after)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes(*len)).min(after.len());
        let (packet, next) = after.split_at(len);
        rest = next;
        match assembler.push(packet) {
            Incoming::More => sent.extend_from_slice(packet),
            Incoming::Message(message) => {
                sent.extend_from_slice(packet);
                assert_eq!(sent.pop(), Some(b'\n'));
                assert_eq!(message, sent);
                assert!(message.len() <= limit);
                sent.clear();
                requests += usize::from(request(&message));
            }
            Incoming::TooLong => {
                assert!(sent.len() + packet.len() > limit);
                return requests;
            }
            Incoming::Closed => {
                assert!(packet.is_empty());
                return requests;
            }
            Incoming::Quiet => panic!("nothing is waited for"),
        }
    }
    requests
}

/// Checks one message; true if it is a request.
pub fn request(message: &[u8]) -> bool {
    match Request::from_bytes(message) {
        Ok(request) => {
            let bytes = serde_json::to_vec(&request).expect("a request can be written");
            assert!(!bytes.contains(&b'\n'), "a message is one line");
            assert_eq!(Request::from_bytes(&bytes).expect("it was written here"), request);
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

/// Checks a graph that a reader asks for, under the terms of a user without a rule; true if it may have it. Nothing is
/// opened.
pub fn graph(text: &str) -> bool {
    let (classes, terms) = (fyke_graph::Classes::new(), Terms::of_user(1000));
    match fyke_serve::graph::check(text, &|name| classes.find(name), &terms) {
        Ok(()) => {
            assert!(text.len() <= terms.limits.text_bytes);
            true
        }
        Err(message) => {
            assert!(!message.is_empty());
            false
        }
    }
}

/// Checks the file in which a service leaves a reader to the process after it: it is read or refused.
pub fn saved(data: &[u8]) -> bool {
    let path = std::env::temp_dir().join(format!("fyke-fuzz-saved-{}", std::process::id()));
    std::fs::write(&path, data).expect("a file");
    let read = fyke_serve::store::load(&std::fs::File::open(&path).expect("it is there"));
    std::fs::remove_file(&path).expect("it is ours");
    read.is_ok()
}

/// Checks the text of a policy; true if it is one.
pub fn policy(text: &str) -> bool {
    let check = |text: &str, _: Option<&[String]>| match text.contains('!') {
        true => Err("refused".to_owned()),
        false => Ok(()),
    };
    match Policy::read(Path::new("p"), text, &Names::default(), &check) {
        Ok(policy) => {
            // Root is never without terms, and a stranger has those of a rule or none.
            let root = policy.terms(Peer { user: 0, group: 0, process: None }, 7, "eth0");
            assert!(root.is_ok());
            let _perhaps =
                policy.terms(Peer { user: 1000, group: 1000, process: Some(7) }, 7, "eth0");
            true
        }
        Err(error) => {
            assert!(error.line >= 1 && error.line <= text.lines().count() + 1, "{error}");
            false
        }
    }
}
