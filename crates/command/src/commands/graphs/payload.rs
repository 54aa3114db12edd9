//! The nodes of `--payload`: streams, and the pattern that they have to match.

use super::{
    CONNECTIONS, FILE_WAIT_SECONDS, Failure, LIVE_WAIT_SECONDS, PAYLOAD, WAITING_BYTES, node, yes,
};
use crate::cli::DumpArgs;
use fyke_graph::Classes;
use fyke_graph::node::Settings;

/// Builds the nodes. Frames of a file wait for the verdict as long as there is room; those of a capture also for a
/// limited time, since they wait for each other.
pub(super) fn payload(args: &DumpArgs) -> Result<Option<String>, Failure> {
    let wrong = |message: &str| Failure::Usage(format!("--payload: {message}"));
    let pattern = match args.payload.as_slice() {
        [] => return Ok(None),
        [pattern] if pattern.trim().is_empty() => {
            return Err(wrong("the pattern is empty; expected one as in '\"GET /\" [a-z]{1,8}'"));
        }
        [pattern] => pattern.clone(),
        _ => return Err(wrong("given twice; one pattern may have alternatives: '\"a\" | \"b\"'")),
    };
    let mut parameters = parameters(args)?;
    if parameters.iter().all(|(name, _)| *name != "connections") {
        parameters.push(("connections", Some(CONNECTIONS.to_string())));
    }
    let streams = node("tcp", &parameters);
    let is_live = args.source.read.is_none();
    let wait = if is_live { LIVE_WAIT_SECONDS } else { FILE_WAIT_SECONDS };
    let rules = node(
        "ruler",
        &[
            ("pattern", Some(pattern)),
            ("stream", yes(true)),
            ("conversation", yes(args.conversation)),
            ("wait", args.conversation.then(|| wait.to_string())),
            ("waiting", args.conversation.then(|| WAITING_BYTES.to_string())),
        ],
    );
    Ok(Some(format!("{streams} > {{{PAYLOAD}}}{rules}")))
}

/// Names and values of the parameters of class `tcp`.
type Parameters<'a> = Vec<(&'a str, Option<String>)>;

/// Reads and checks `--streams`.
fn parameters(args: &DumpArgs) -> Result<Parameters<'_>, Failure> {
    let wrong = |message: String| Failure::Usage(format!("--streams: {message}"));
    let class = Classes::new().find("tcp");
    let class = class.ok_or_else(|| wrong("there is no class tcp".to_owned()))?;
    let known = class.parameters.iter().map(|one| one.name).filter(|name| *name != "payload");
    let known: Vec<&str> = known.collect();
    let mut parameters: Parameters<'_> = Vec::new();
    for part in args.streams.iter().flat_map(|text| text.split(',')) {
        let Some((name, value)) = part.split_once('=') else {
            return Err(wrong(format!("`{part}`: expected NAME=VALUE, as in gap=2")));
        };
        if !known.contains(&name) {
            let known = known.join(", ");
            return Err(wrong(format!("`{name}`: unknown parameter; expected one of: {known}")));
        }
        if name != "policy" && parameters.iter().any(|(other, _)| *other == name) {
            return Err(wrong(format!("{name}: given twice; leave one of them out")));
        }
        parameters.push((name, Some(value.to_owned())));
    }
    let pairs = parameters.iter().cloned();
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.unwrap_or_default()));
    match (class.make)(&Settings::new(pairs)) {
        Err(error) if !error.refused => Err(wrong(format!("{}: {error}", error.parameter))),
        _ => Ok(parameters),
    }
}
