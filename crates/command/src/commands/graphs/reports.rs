//! Reports of a command about the graph that it runs: errors of its text and of its edits, failures of nodes, and what
//! the counters of nodes tell at the end.

use super::super::Failure;
use super::{LIVE_WAIT_SECONDS, PAYLOAD, WAITING_BYTES};
use fyke_capture::WriteError;
use fyke_filters::FilterError;
use fyke_graph::language::TextError;
use fyke_graph::node::{Counter, NodeError};
use fyke_graph::runtime::EditError;
use fyke_graph::{GraphHandle, GraphView, LOST_BY_CLIENTS, PASSED_OVER, SENT_TO_CLIENTS, UNFIT};
use std::collections::HashSet;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

/// Interval between checks whether a rotation has met a name that it cannot use.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Reports on standard error, once for each node, that its rotation has met a name that it cannot use. Does nothing for
/// a graph that rotates no file.
pub fn report_passed_over(rotates: bool, handle: &GraphHandle) -> Result<(), Failure> {
    if !rotates {
        return Ok(());
    }
    let (handle, mut reported) = (handle.clone(), HashSet::new());
    let look = move || loop {
        std::thread::sleep(LOOK_INTERVAL);
        for node in &handle.view().nodes {
            let passed_over = node.counters.iter().any(|counter| counter.name == PASSED_OVER);
            if passed_over && reported.insert(node.id) {
                note!(
                    "fyke: {}: a name of the rotation is taken by another user's file; the next \
                     free name is used",
                    node.text
                );
            }
        }
    };
    std::thread::Builder::new().name("rotation".to_owned()).spawn(look)?;
    Ok(())
}

/// Converts the error of a graph that does not start. The message of a class about a value (such as a filter
/// expression) is shown alone, because users of `dump` have not written the graph around it.
pub fn refused(error: EditError) -> Failure {
    match error {
        EditError::Text(TextError { value: Some(message), .. }) => Failure::Usage(message.into()),
        EditError::Instantiate(error) if error.error.refused => {
            Failure::Running(anyhow::anyhow!(error.error.message))
        }
        EditError::Instantiate(error) => Failure::Usage(error.error.message),
        EditError::Workers(reason) => Failure::Usage(reason),
        other => wrong_edit(other),
    }
}

/// Converts an invalid graph text to a usage error: exit status 2.
pub fn wrong_graph(error: TextError) -> Failure {
    Failure::Usage(error.to_string())
}

/// Converts the error of a graph that cannot be started or edited.
pub fn wrong_edit(error: EditError) -> Failure {
    match error {
        EditError::Text(error) => wrong_graph(error),
        other => Failure::Running(other.into()),
    }
}

/// Reports on standard error the frames that waited for the verdict about their conversation and did not pass, because
/// of a limit.
pub fn say_let_go(view: &GraphView) {
    let counters =
        view.nodes.iter().filter(|node| node.name == PAYLOAD).flat_map(|node| &node.counters);
    let value = |name: &str| {
        let own = counters.clone().filter(|counter| counter.name == name);
        own.map(|counter| counter.value as u64).sum::<u64>()
    };
    let (let_go, unseen) = (value("let_go"), value("unseen_matches"));
    if let_go > 0 {
        note!(
            "fyke: --conversation: {let_go} of {} frames that waited for a match were given up at a limit (4 MiB for a \
             connection, {} MiB in all, in a capture {LIVE_WAIT_SECONDS} s); connections may lack their first frames",
            value("copied_frames"),
            WAITING_BYTES >> 20
        );
    }
    if unseen > 0 {
        note!(
            "fyke: --payload: {unseen} connections matched only after their last frame, because of lost segments; \
             --conversation accepts their frames too"
        );
    }
}

/// Reports on standard error the times that could not be read as they are, of files that the command line names; if it
/// names none, of the nodes of a graph. `program` begins the line.
pub fn say_clamped(view: &GraphView, files: Option<&[PathBuf]>, program: &str) {
    for source in view.sources.iter().filter(|source| source.stats.clamped_times > 0) {
        let node = || view.nodes.iter().find(|node| node.key == source.node);
        let file = match files {
            Some([file]) => file.display().to_string(),
            Some(_) => "the files".to_owned(),
            None => node().map_or_else(String::new, |node| node.text.to_string()),
        };
        note!(
            "{program}: {file}: {} frames have times outside of 1970 to 2554; they get the nearest time in it",
            source.stats.clamped_times
        );
    }
}

/// Reports on standard error the frames that no filter could evaluate, because none fits their link type, and the files
/// that could not be made under their names. Also the counts of clients.
pub fn say_unfit(view: &GraphView) {
    for node in &view.nodes {
        let value = |name: &str| {
            node.counters.iter().find(|counter| counter.name == name).map(|it| it.value)
        };
        if let (Some(sent), Some(lost)) = (value(SENT_TO_CLIENTS), value(LOST_BY_CLIENTS)) {
            note!("fyke: {}: {sent} frames sent to clients, {lost} lost by slow ones", node.text);
        }
        for counter in node.counters.iter().filter(|counter| counter.name == PASSED_OVER) {
            note!(
                "fyke: {}: {} file names of a rotation were passed over, because files of other users or \
                 of earlier captures are there",
                node.text,
                counter.value
            );
        }
    }
    let several = view.nodes.iter().filter(|node| node.counters.iter().any(is_unfit)).count() > 1;
    for node in &view.nodes {
        for counter in node.counters.iter().filter(|counter| is_unfit(counter)) {
            let link = &counter.name[UNFIT.len()..];
            let filter = if several { &*node.text } else { "the filter" };
            note!(
                "fyke: {filter} does not fit link type {link}: {} frames rejected",
                counter.value
            );
        }
    }
}

/// True if the counter counts frames of a link type that no filter fits.
pub fn is_unfit(counter: &Counter) -> bool {
    counter.name.starts_with(UNFIT)
}

/// True if a node has ended because the last file of a rotation is complete.
pub fn is_file_limit(failed: Option<&NodeError>) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = failed.map(|failed| &*failed.0 as _);
    while let Some(found) = cause {
        if found.downcast_ref().is_some_and(WriteError::is_file_limit) {
            return true;
        }
        cause = found.source();
    }
    false
}

/// Converts the failure of a node to the failure of the command.
pub fn node_failure(view: &GraphView) -> Result<(), Failure> {
    let mut nodes = view.nodes.iter().filter(|node| !node.feeds.is_empty());
    let Some(error) = nodes.find_map(|node| node.failed.as_ref()) else { return Ok(()) };
    if is_file_limit(Some(error)) {
        return Ok(());
    }
    let mut cause: Option<&(dyn Error + 'static)> = Some(&*error.0);
    while let Some(found) = cause {
        if found.is::<FilterError>() {
            return Err(Failure::Usage(error.to_string()));
        }
        let io = found.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe) {
            return Err(Failure::Pipe);
        }
        cause = found.source();
    }
    Err(Failure::Running(anyhow::anyhow!(error.to_string())))
}
