//! `fyke rules`: edits the Bloom pre-filter of the fyke that captures on an interface.
//!
//! It edits the node `bloom` of the graph, over the control socket of the process. Source of the rule syntax: Deri,
//! *High-Speed Dynamic Packet Filtering*, where rules are written to `/proc/net/ethX/rules`.

use super::Failure;
use super::ctl::{connect, refused};
use crate::cli::RulesArgs;
use fyke_control::{Request, Response};
use std::io::Write;

/// Runs the command.
pub fn run(args: RulesArgs) -> Result<(), Failure> {
    let request = Request::Rules { command: args.command.join(" ") };
    let pid = running_on(&args.interface)?;
    match connect(Some(pid))?.call(request).map_err(refused)? {
        Response::Rules { text } => write!(super::output(), "{text}")?,
        Response::Error { message } => return Err(Failure::Usage(message)),
        other => {
            return Err(Failure::Running(anyhow::anyhow!("unexpected answer: {other:?}")));
        }
    }
    Ok(())
}

/// Returns the process id of the fyke that captures on an interface.
fn running_on(interface: &str) -> Result<u32, Failure> {
    let on_it = |source: &str| source.split(", ").any(|name| name == interface);
    let running: Vec<u32> = fyke_control::list()
        .into_iter()
        .filter(|found| found.description.as_ref().is_some_and(|it| on_it(&it.source)))
        .map(|found| found.pid)
        .collect();
    match running[..] {
        [pid] => Ok(pid),
        [] => Err(Failure::Running(anyhow::anyhow!(
            "no fyke owned by you captures on {interface}; start one with fyke dump -i {interface}"
        ))),
        _ => Err(Failure::Running(anyhow::anyhow!(
            "several fykes capture on {interface} (process ids {running:?}); a rule reaches only one"
        ))),
    }
}
