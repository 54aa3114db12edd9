//! Class `toring`: puts frames into a ring in shared memory, for other processes to read, and passes them. It is an
//! [export](crate::export) of the frames that arrive.

use crate::credits;
use crate::export::{BUFFER, Export, FRAMES, Options, PREFER, Passed};
use crate::node::{
    Arrival, Class, Counter, Emitted, MakeError, Node, NodeError, Opens, Parameter, Settings,
};
use crate::snaplen::SNAPLEN;
use fyke_frame::Mask;
use fyke_ring::Values;
use std::path::Path;
use std::sync::Arc;

struct ToRing(Export);

impl Node for ToRing {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let passed = Passed {
            frames: arrival.batch().frames(),
            mask: arrival.mask(),
            interfaces: arrival.interfaces(),
            source: arrival.source(),
            serial: arrival.serial(),
        };
        self.0.take(&passed, |index| credits::mark(arrival.serial(), index, arrival.class(index)));
        Ok(arrival.mask())
    }

    fn finish(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        self.0.close();
        Ok(())
    }

    fn values(&self) -> Option<Arc<Values>> {
        Some(self.0.values())
    }

    fn counters(&self) -> Vec<Counter> {
        self.0.counters()
    }
}

/// The path of the ring.
fn path(settings: &Settings) -> Result<&str, MakeError> {
    let path = settings.required("expression")?;
    let problem = match path {
        _ if path.contains(char::is_control) => "has a control character",
        _ if path.ends_with('/') => "ends with a slash",
        _ => return Ok(path),
    };
    let message = format!("{path:?} {problem}; expected the path of a socket");
    Err(MakeError::new("expression", message))
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let path = path(settings)?;
    let export = Export::new(Path::new(path), Options::read(settings)?, settings.interfaces());
    let refused = |error| {
        MakeError::refused("expression", format!("cannot publish the ring {path}: {error}"))
    };
    Ok(Box::new(ToRing(export.map_err(refused)?)))
}

/// The class.
pub const CLASS: Class = Class {
    name: "toring",
    aliases: &["to_ring"],
    summary: "puts frames into the ring in shared memory `expression` and passes them",
    lasting: true,
    parameters: &[
        Parameter { name: "expression", summary: "the path at which readers find the ring" },
        SNAPLEN,
        BUFFER,
        FRAMES,
        PREFER,
    ],
    check: Some(|settings| {
        path(settings)?;
        Options::read(settings).map(drop)
    }),
    make,
    // A socket at a path, for other processes.
    opens: |_| Opens::Network,
    ..Class::NODE
};
