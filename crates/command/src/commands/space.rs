//! The kernel as the space below a graph: filters directly after a device run in the socket, too.

use fyke_capture::{Interface, SocketFilter};
use fyke_filter::Options;
use fyke_filters::{KernelStage, Listing, Superset};
use fyke_frame::LinkType;
use fyke_graph::GraphHandle;
use fyke_graph::placement::{LowerFilter, Space};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Link types of sockets that the program can filter.
const LINKS: [LinkType; 3] = [LinkType::EN10MB, LinkType::LINUX_SLL2, LinkType::RAW];

/// The kernel, by a program on the capture's socket.
pub struct Kernel;

/// Describes where the filters after devices run; `None` without a device.
pub fn placement(handle: &GraphHandle) -> Option<String> {
    fyke_graph::placement::in_words(&handle.placements())
}

/// The texts of a filter in the kernel.
#[derive(Debug)]
struct InKernel {
    stage: KernelStage,
    link: LinkType,
}

impl Space for Kernel {
    fn filter(
        &self,
        interface: &Interface,
        reading: Options,
    ) -> Result<Arc<dyn LowerFilter>, String> {
        if !LINKS.contains(&interface.link) {
            return Err(format!("it does not filter frames of link type {}", interface.link));
        }
        let stage = KernelStage::open(reading, interface.snaplen);
        let stage = stage.map_err(|error| error.to_string())?;
        Ok(Arc::new(InKernel { stage, link: interface.link }))
    }
}

impl Superset for InKernel {
    fn widen(&self, added: &[(u64, &str)], unfiltered: bool) {
        self.stage.widen(added, unfiltered);
    }

    fn narrow(&self, texts: &dyn Fn() -> Listing, removed: &[u64]) {
        self.stage.narrow(texts, removed);
    }

    fn open_for_good(&self, reason: &'static str) {
        self.stage.open_for_good(reason);
    }
}

impl SocketFilter for InKernel {
    fn attach(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.stage.attach(socket, self.link).map_err(io::Error::other)
    }

    fn rejected(&self) -> u64 {
        self.stage.rejected()
    }
}

impl LowerFilter for InKernel {
    fn passes_all(&self) -> Option<String> {
        self.stage.reason()
    }
}
