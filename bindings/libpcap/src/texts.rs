//! The texts of programs that `pcap_compile` has made, by the programs' data link type and bytes: `pcap_setfilter` gets
//! the program only.
//!
//! The newest are kept, up to a number of programs and of bytes.

use crate::c::Instruction;
use crate::fork::NoFork;
use fyke_filter::Options;
use fyke_filter::bpf as lowering;
use libc::c_int;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Most programs.
const MAX_PROGRAMS: usize = 1_000;
/// Most bytes of programs and texts.
const MAX_BYTES: usize = 16 << 20;

/// A text, and the netmask that it was compiled with.
#[derive(Debug, Clone)]
pub struct Text {
    /// The text.
    pub text: String,
    /// The netmask.
    pub netmask: u32,
}

#[derive(Debug, Default)]
struct Texts {
    by_program: HashMap<Vec<u8>, Text>,
    /// The programs, oldest first.
    order: VecDeque<Vec<u8>>,
    bytes: usize,
}

fn texts() -> MutexGuard<'static, Texts> {
    static TEXTS: OnceLock<Mutex<Texts>> = OnceLock::new();
    TEXTS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// The data link type and the bytes of a program: on another type, the same bytes come from another text.
fn key(program: &[Instruction], link: c_int) -> Vec<u8> {
    let bytes = |one: &Instruction| {
        let [a, b] = one.code.to_ne_bytes();
        let [c, d, e, f] = one.k.to_ne_bytes();
        [a, b, one.jt, one.jf, c, d, e, f]
    };
    link.to_ne_bytes().into_iter().chain(program.iter().flat_map(bytes)).collect()
}

/// Remembers the text of a program for a data link type.
pub fn remember(program: &[Instruction], link: c_int, text: &str, netmask: u32) {
    let _no_fork = NoFork::begin();
    let key = key(program, link);
    let size = key.len() * 2 + text.len();
    if size > MAX_BYTES {
        return;
    }
    let texts = &mut *texts();
    let value = Text { text: text.to_owned(), netmask };
    match texts.by_program.insert(key.clone(), value) {
        Some(old) => texts.bytes = texts.bytes + text.len() - old.text.len(),
        None => {
            texts.bytes += size;
            texts.order.push_back(key);
        }
    }
    while texts.order.len() > MAX_PROGRAMS || texts.bytes > MAX_BYTES {
        let Some(oldest) = texts.order.pop_front() else { return };
        if let Some(old) = texts.by_program.remove(&oldest) {
            texts.bytes = texts.bytes.saturating_sub(oldest.len() * 2 + old.text.len());
        }
    }
}

/// The text of a program for a data link type.
pub fn of(program: &[Instruction], link: c_int) -> Option<Text> {
    let _no_fork = NoFork::begin();
    texts().by_program.get(&key(program, link)).cloned()
}

/// Compiles a text here: libpcap takes minutes for a long one, and refuses what only a live capture has.
///
/// # Errors
/// The text is refused, or has no program.
pub fn compile(text: &str, options: &Options) -> Result<Vec<Instruction>, String> {
    let predicate = fyke_filter::compile(text, options).map_err(|error| error.to_string())?;
    let program =
        lowering::lower(&predicate, options.snaplen).map_err(|error| error.to_string())?;
    let plain = |one: &lowering::Instruction| Instruction {
        code: one.code,
        jt: one.jt,
        jf: one.jf,
        k: one.k,
    };
    Ok(program.iter().map(plain).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(k: u32) -> [Instruction; 1] {
        [Instruction { code: 6, jt: 0, jf: 0, k }]
    }

    #[test]
    fn the_newest_texts_are_kept() {
        for k in 0..MAX_PROGRAMS as u32 + 10 {
            remember(&program(k), 1, &format!("text {k}"), 0);
        }
        assert!(of(&program(9), 1).is_none());
        assert_eq!(of(&program(10), 1).unwrap().text, "text 10");
        remember(&program(10), 1, "another", 7);
        assert!(of(&program(10), 12).is_none());
        assert_eq!(of(&program(10), 1).unwrap().text, "another");
        assert_eq!(of(&program(10), 1).unwrap().netmask, 7);
    }
}
