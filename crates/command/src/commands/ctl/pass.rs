//! `fyke ctl pass`: calls on single passes of a running fyke, each as one argument in words.

use super::super::Failure;
use fyke_control::{PassCall, Request, Response};
use std::net::Ipv4Addr;

const EXPECTED: &str = "expected one of: new; dup PASS; del PASS; select [PASS.]INDEX OPERATION [MASK]; \
                        add [PASS.]INDEX VALUE; remove [PASS.]INDEX VALUE; poke [PASS.]INDEX WORD VALUE";

/// Reads the calls on passes of a node.
pub fn request(calls: &[String], node: Option<String>) -> Result<Request, Failure> {
    let read =
        |(place, text): (usize, &String)| call(text).map_err(|error| refused(calls, place, &error));
    let calls = calls.iter().enumerate().map(read).collect::<Result<_, _>>()?;
    Ok(Request::Passes { calls, node })
}

/// Names the call that was refused.
pub fn check(calls: &[String], response: Response) -> Result<Response, Failure> {
    match response {
        Response::Refused { change, message } => {
            Err(refused(calls, change, &format!("{message}\nno call was carried out")))
        }
        other => Ok(other),
    }
}

fn refused(calls: &[String], place: usize, message: &str) -> Failure {
    let call = calls.get(place).map_or("", String::as_str);
    Failure::Usage(format!("call {}, '{call}': {message}", place + 1))
}

fn call(text: &str) -> Result<PassCall, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        ["new"] => Ok(PassCall::New {}),
        ["dup", pass] => Ok(PassCall::Dup { pass: number(pass)? }),
        ["del", pass] => Ok(PassCall::Del { pass: number(pass)? }),
        ["select", place, op] => select(place, op, None),
        ["select", place, op, mask] => select(place, op, Some(value(mask)?)),
        ["add", place, given] => {
            let ((pass, index), value) = (instruction(place)?, value(given)?);
            Ok(PassCall::Add { pass, index, value })
        }
        ["remove", place, given] => {
            let ((pass, index), value) = (instruction(place)?, value(given)?);
            Ok(PassCall::Remove { pass, index, value })
        }
        ["poke", place, word, given] => {
            let ((pass, index), word) = (instruction(place)?, number(word)?);
            Ok(PassCall::Poke { pass, index, word, value: value(given)? })
        }
        _ => Err(EXPECTED.to_owned()),
    }
}

fn select(place: &str, op: &str, mask: Option<u32>) -> Result<PassCall, String> {
    let (pass, index) = instruction(place)?;
    Ok(PassCall::Select { pass, index, op: op.to_owned(), mask })
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

/// An instruction: `PASS.INDEX`, or `INDEX` in the pass that the call before has made.
fn instruction(text: &str) -> Result<(Option<u64>, usize), String> {
    match text.split_once('.') {
        Some((pass, index)) => Ok((Some(number(pass)?), number(index)?)),
        None => Ok((None, number(text)?)),
    }
}

/// A value of 32 bits: decimal, hexadecimal, or an IPv4 address.
fn value(text: &str) -> Result<u32, String> {
    let value = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok().or_else(|| text.parse::<Ipv4Addr>().ok().map(u32::from)),
    };
    value.ok_or_else(|| {
        format!("{text:?} is not a value of 32 bits: 80, 0x50, or an address such as 10.0.0.1")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_words() {
        let (pass, index) = (Some(7), 1);
        assert_eq!(call("new"), Ok(PassCall::New {}));
        assert_eq!(call("add 7.1 10.0.0.1"), Ok(PassCall::Add { pass, index, value: 0x0a00_0001 }));
        assert_eq!(call("add 1 0x50"), Ok(PassCall::Add { pass: None, index, value: 80 }));
        let poke = PassCall::Poke { pass, index, word: 2, value: 9 };
        assert_eq!(call(" poke  7.1 2 9"), Ok(poke));
        for wrong in ["", "new 1", "dup", "dup x", "add 7. 1", "add 1 -1", "add 1 0x", "poke 1 2"] {
            assert!(call(wrong).is_err(), "{wrong}");
        }
    }
}
