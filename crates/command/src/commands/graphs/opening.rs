//! Opening of a graph that reads services: a service that does not answer is reported while it is waited for.

use fyke_graph::Plan;
use fyke_graph::plan::PlanNode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Time after which the wait is reported. The client of a service gives up after a longer one.
const PATIENCE: Duration = Duration::from_secs(2);

/// The services among the names of interfaces.
fn services<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    names.filter(|name| name.starts_with("serve:")).map(str::to_owned).collect()
}

/// Opens the sources of a plan by `open`; see [`patiently`].
pub fn of_plan<T>(plan: &Plan, open: impl FnOnce() -> T) -> T {
    patiently(plan.nodes.iter().flat_map(PlanNode::interface_names), open)
}

/// Opens interfaces by `open`. If one of them is a service and this takes long, a line on standard error reports it.
/// The thread that writes it has ended when this returns, so the process can drop its rights.
pub fn patiently<'n, T>(names: impl Iterator<Item = &'n str>, open: impl FnOnce() -> T) -> T {
    let services = services(names);
    if services.is_empty() {
        return open();
    }
    let (opened, wait) = channel::<()>();
    let report = move || {
        if wait.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            note!(
                "fyke: {} does not answer yet; waiting. `fyke ctl list` shows running services; a stopped one \
                 (SIGSTOP) continues after kill -CONT",
                services.join(", ")
            );
        }
    };
    // Without a thread, only the report is missing.
    let thread = std::thread::Builder::new().name("fyke-patience".into()).spawn(report).ok();
    let done = open();
    drop(opened);
    // A panic of it is on standard error already.
    let _panicked = thread.map(std::thread::JoinHandle::join);
    done
}
