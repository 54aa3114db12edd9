//! The requests that a page may make, and their limits.

use crate::server::Options;
use fyke_control::{CallError, Change, Client, EntryKind, Request, Response, ShownFrame};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// Most bytes of an answer.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Most changes of one edit.
const MAX_CHANGES: usize = 100;
/// Most entries of the log, and most explained frames, in one answer.
const MAX_ENTRIES: u64 = 100;
/// Longest wait for the answer of the running fyke.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// Refusal of a text of `fyke demux`.
const ENDPOINT: &str =
    "a text with => names an endpoint, which can be a file; add it with `fyke ctl add`";

/// A request of a page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The process.
    pub pid: u32,
    /// A [`fyke_control::Request`].
    pub request: Value,
}

/// Carries a call out; returns the answer as JSON. Connects anew for each call, so an idle page holds no connection.
pub fn answer(call: &Call, options: &Options) -> Vec<u8> {
    let mut response = read(&call.request, options.edits)
        .and_then(|request| carry_out(call.pid, request, options))
        .unwrap_or_else(|message| Response::Error { message });
    if !options.payload {
        without_payload(&mut response);
    }
    let too_long = |given: usize| Response::Error {
        message: format!(
            "the answer has {given} bytes, the limit is {MAX_ANSWER_BYTES}; use fyke ctl"
        ),
    };
    match serde_json::to_vec(&response) {
        Ok(line) if line.len() <= MAX_ANSWER_BYTES => line,
        Ok(line) => serde_json::to_vec(&too_long(line.len())).unwrap_or_default(),
        Err(error) => {
            serde_json::to_vec(&Response::Error { message: error.to_string() }).unwrap_or_default()
        }
    }
}

/// Reads a request, within the limits of a page.
fn read(request: &Value, edits: bool) -> Result<Request, String> {
    let line = serde_json::to_vec(request).map_err(|error| error.to_string())?;
    let request = Request::from_line(&line).map_err(|error| format!("not a request: {error}"))?;
    let most = |given: Option<u64>| Some(given.unwrap_or(MAX_ENTRIES).min(MAX_ENTRIES));
    match request {
        Request::Describe | Request::Stats | Request::Try { .. } => Ok(request),
        Request::Log { last } => Ok(Request::Log { last: most(last) }),
        Request::Why { last } => Ok(Request::Why { last: most(last) }),
        Request::Frames { last, verdict } => Ok(Request::Frames { last: most(last), verdict }),
        Request::Set { .. }
        | Request::Add { .. }
        | Request::Delete { .. }
        | Request::Undo { .. }
        | Request::Pause
        | Request::Start
            if edits =>
        {
            Ok(request)
        }
        Request::Edit { ref changes } if edits && changes.len() <= MAX_CHANGES => Ok(request),
        Request::Edit { .. } if edits => Err(format!("an edit has at most {MAX_CHANGES} changes")),
        Request::Show
        | Request::Save { .. }
        | Request::Load
        | Request::Hello { .. }
        | Request::Rules { .. }
        | Request::Passes { .. } => Err("a page cannot make this request; use fyke ctl".to_owned()),
        Request::Watch { .. } => Err("counts come from /api/events".to_owned()),
        _ => Err("this page is for reading only (fyke web --read-only)".to_owned()),
    }
}

/// Texts that an edit adds.
fn texts(request: &Request) -> Vec<&str> {
    let added = |change| match change {
        &Change::Add { ref text, .. } | &Change::Set { ref text } => Some(text.as_str()),
        Change::Delete { .. } => None,
    };
    match request {
        Request::Set { text } | Request::Add { text } => vec![text],
        Request::Edit { changes } => changes.iter().filter_map(added).collect(),
        _ => Vec::new(),
    }
}

/// The texts of the sources of a fyke that runs texts of graphs; `None` for other fykes.
fn sources(client: &mut Client) -> Result<Option<Vec<String>>, String> {
    let Response::Stats(stats) = client.call(Request::Stats).map_err(refused)? else {
        return Err("the running fyke does not tell its counts".to_owned());
    };
    if !stats.filters.iter().any(|one| one.kind == EntryKind::Graph) {
        return Ok(None);
    }
    let sources = stats.nodes.into_iter().filter(|node| node.feeds.is_empty());
    Ok(Some(sources.map(|node| node.text).collect()))
}

fn carry_out(pid: u32, request: Request, options: &Options) -> Result<Response, String> {
    let mut client = Client::connect(Some(pid)).map_err(|error| error.to_string())?;
    client.set_answer_limit(ANSWER_LIMIT);
    client.hello(&options.program).map_err(refused)?;
    let added = texts(&request);
    let sources = if added.is_empty() { None } else { sources(&mut client)? };
    for text in added {
        if let Some(sources) = &sources {
            options.looks.live(text, sources)?;
            continue;
        }
        // The text of a graph, or of an endpoint, could open files; it cannot be tried.
        let tried = Request::Try { text: text.to_owned(), last: Some(1) };
        client.call(tried).map_err(|error| match text.contains("=>") {
            true => ENDPOINT.to_owned(),
            false => refused(error),
        })?;
    }
    client.call(request).map_err(refused)
}

/// Ends the lines of frames at their first `: `, before what is in the packet, and their bytes after the headers.
fn without_payload(response: &mut Response) {
    let frames: Vec<&mut ShownFrame> = match response {
        Response::Tried(tried) => tried.first.iter_mut().collect(),
        Response::Rejected(all) => all.frames.iter_mut().map(|one| &mut one.frame).collect(),
        Response::Frames(all) => {
            let frames = all.frames.iter_mut().map(|one| {
                let digits = usize::try_from(one.header_len).unwrap_or(usize::MAX);
                one.bytes.truncate(digits.saturating_mul(2));
                &mut one.frame
            });
            frames.collect()
        }
        _ => Vec::new(),
    };
    for frame in frames {
        if let Some(end) = frame.line.find(": ") {
            frame.line.truncate(end);
        }
    }
}

fn refused(error: CallError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_page_gets_no_files_and_no_other_protocol() {
        for request in [
            json!({"request":"save","format":"pcap"}),
            json!({"request":"rules","command":"reset"}),
            json!({"request":"watch","interval_ms":1}),
            json!({"request":"hello","program":"fyke ctl"}),
            json!({"request":"show"}),
            json!({"request":"stats","more":1}),
        ] {
            assert!(read(&request, true).is_err(), "{request}");
        }
        assert_eq!(read(&json!({"request":"stats"}), false), Ok(Request::Stats));
        let why = read(&json!({"request":"why","last":1_000_000}), false);
        assert_eq!(why, Ok(Request::Why { last: Some(MAX_ENTRIES) }));
    }

    #[test]
    fn a_page_for_reading_edits_nothing() {
        for request in [
            json!({"request":"add","text":"udp"}),
            json!({"request":"set","text":"udp"}),
            json!({"request":"delete","id":1}),
            json!({"request":"undo"}),
            json!({"request":"pause"}),
            json!({"request":"start"}),
            json!({"request":"edit","changes":[]}),
        ] {
            assert!(read(&request, true).is_ok(), "{request}");
            assert!(read(&request, false).unwrap_err().contains("--read-only"), "{request}");
        }
    }

    #[test]
    fn lines_end_before_the_payload() {
        let frame = |line: &str| ShownFrame {
            timestamp_ns: 1,
            link: "EN10MB".into(),
            wire_len: 60,
            line: line.into(),
        };
        let first = vec![frame("IP6 fe80::1.53 > ::1.9: 7+ A? secret. (30)"), frame("ARP, Reply")];
        let mut response = Response::Tried(fyke_control::Tried { first, ..Default::default() });
        without_payload(&mut response);
        let Response::Tried(tried) = response else { panic!("the same kind") };
        assert_eq!(tried.first, [frame("IP6 fe80::1.53 > ::1.9"), frame("ARP, Reply")]);
    }

    #[test]
    fn every_added_text_is_tried() {
        let changes = vec![
            Change::Add { text: "a".into(), name: None, for_ms: None, snaplen: None },
            Change::Delete { id: 1 },
            Change::Set { text: "b".into() },
        ];
        assert_eq!(texts(&Request::Edit { changes }), ["a", "b"]);
        assert_eq!(texts(&Request::Set { text: "c".into() }), ["c"]);
    }
}
