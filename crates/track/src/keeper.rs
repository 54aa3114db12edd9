//! Keeps a pass set in step with the data connections a tracker reports.

mod plan;

pub use plan::PORTS_PER_PASS;
