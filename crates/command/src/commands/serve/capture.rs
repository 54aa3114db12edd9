//! One capture of a service: the graph `device > serve` with its readers.
//!
//! ```text
//! open ─▶ restore readers, place in the kernel ─▶ (rights are dropped) ─▶ start ─▶ run: a thread for each capture
//! ```

use super::super::Failure;
use super::super::graphs;
use super::super::privilege::{Doors, Needs};
use super::super::space::{COUNT_ALL, Kernel};
use super::super::unseen::Unseen;
use super::kept::{Kept, Manager};
use super::live::Shown;
use super::log::Log;
use super::wanted::Wanted;
use crate::cli::SourceArgs;
use fyke_graph::runtime::Opened;
use fyke_graph::{Engine, GraphHandle, GraphView};
use fyke_serve::{Listening, Policy, Restoration, Server, Service};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A capture that is open and does not run yet.
pub struct Capture {
    pub name: String,
    pub interface: String,
    pub service: Arc<Service>,
    opened: Opened,
    kept: Kept,
    restored: Restoration,
    socket: Option<Listening>,
    unseen: Unseen,
}

/// A capture with readers that are served.
pub struct Running {
    pub name: String,
    pub interface: String,
    pub service: Arc<Service>,
    pub handle: GraphHandle,
    pub unseen: Unseen,
    pub server: Server,
    engine: Engine,
}

/// A capture at its end.
pub struct Ended {
    pub view: GraphView,
    pub unseen: Unseen,
    pub result: Result<(), Failure>,
}

impl Capture {
    /// Opens the capture, with what the process before has left of it.
    pub fn open(
        wanted: Wanted,
        service: Arc<Service>,
        manager: &mut Manager,
    ) -> Result<Capture, Failure> {
        let Wanted { source, name, socket } = wanted;
        let kept = manager.open(&name)?;
        let opened = open(&source, &service)?;
        let interface = source.interface[0].clone();
        let restored = Restoration::default();
        let unseen = Unseen::start(opened.plan(), false);
        Ok(Capture { name, interface, service, opened, kept, restored, socket, unseen })
    }

    /// Restores the readers, places their texts in the kernel, and opens the socket.
    pub fn prepare(&mut self, policy: &Policy, count_all: bool) -> Result<(), Failure> {
        // The texts of readers before the filter in the kernel, which would reject their frames.
        self.restored = self.kept.restore(&self.service, policy);
        let count_all = count_all.then_some(COUNT_ALL);
        self.opened.place(&Kernel { count_all });
        self.kept.keep_capture()?;
        if self.socket.is_none() {
            self.socket = Some(Listening::open(&self.name).map_err(super::refused)?);
        }
        Ok(())
    }

    /// Rights that it needs while it runs.
    pub fn needs(&self, doors: Doors) -> Needs {
        Needs::of(self.opened.plan(), doors)
    }

    /// Link type of its frames.
    pub fn link(&self) -> String {
        self.service.interface().map_or_else(String::new, |interface| interface.link.to_string())
    }

    /// Serves the readers; frames flow once it [runs](Running::run).
    pub fn start(self, policy: Policy, log: &Log) -> Result<(Running, Kept), Failure> {
        let Capture { name, interface, service, opened, kept, restored, socket, unseen } = self;
        let (mut engine, handle) = opened.start().map_err(graphs::refused)?;
        // The failure of a node of a reader's graph ends that reader.
        engine.end_at_failure_of(graphs::SERVE);
        engine.on_notice(log.of_notices());
        service.begin(handle.clone());
        kept.count_on(&service)?;
        let socket = socket.ok_or_else(|| anyhow::anyhow!("the socket of {name} is not open"))?;
        let (shared, report) = (Arc::clone(&service), Some(log.of_readers()));
        let server = Server::start_with(socket, shared, policy, kept.store(), restored, report)?;
        Ok((Running { name, interface, service, handle, unseen, server, engine }, kept))
    }
}

impl Running {
    /// The capture for the control socket.
    pub fn shown(&self) -> Shown {
        Shown {
            name: self.name.clone(),
            handle: self.handle.clone(),
            readers: Box::new(self.server.readers()),
            pause: Box::new(self.server.pause()),
        }
    }

    /// Runs until `stop`; a failure stops all captures of the service.
    pub fn run(mut self, stop: &Arc<AtomicBool>) -> Ended {
        let result = self.engine.run(stop);
        stop.store(true, Ordering::Relaxed);
        drop(self.server);
        let mut view = self.engine.view();
        // The failure of a reader's node was told to that reader.
        view.nodes.retain(|node| node.name == graphs::SERVE);
        let result = graphs::node_failure(&view).and_then(|()| Ok(result?));
        Ended { view: self.engine.view(), unseen: self.unseen, result }
    }
}

/// Opens the graph of a capture; nothing is placed in the kernel yet.
fn open(source: &SourceArgs, service: &Arc<Service>) -> Result<Opened, Failure> {
    let mut classes = graphs::classes();
    classes.register_with(fyke_serve::class::CLASS, fyke_serve::class::maker(service));
    fyke_serve::graph::register(&mut classes, service);
    let (capture, node) = (fyke_serve::graph::CAPTURE, graphs::SERVE);
    let device = graphs::plain_source(source, false)?;
    let text = format!("{{{capture}}}{device} > {{{node}}}({})", fyke_serve::class::NAME);
    GraphHandle::open(&[&text], classes, 1).map_err(graphs::refused)
}
