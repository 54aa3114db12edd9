//! Class `tofile`: writes frames to a capture file and passes them. Cost: a copy into the file's buffer.

use crate::node::{Arrival, Class, Counter, Emitted, MakeError, Node, NodeError};
use crate::node::{Parameter, Settings};
use fyke_capture::{Sink, WriteOptions};
use fyke_frame::Mask;
use std::path::PathBuf;

/// The file is created when the first frame comes or the graph ends: only then its interfaces are known.
struct ToFile {
    path: PathBuf,
    limit: u64,
    snaplen: u32,
    written: u64,
    sink: Option<Box<dyn Sink>>,
}

impl ToFile {
    fn options(&self) -> WriteOptions {
        WriteOptions { snaplen: self.snaplen, ..WriteOptions::default() }
    }
}

impl Node for ToFile {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let sink = match &mut self.sink {
            Some(sink) => sink,
            None => {
                let interfaces = arrival.interfaces().to_vec();
                let options = WriteOptions { interfaces, ..self.options() };
                let sink = fyke_capture::create_file(&self.path, options);
                self.sink.insert(sink.map_err(NodeError::new)?)
            }
        };
        for (_, frame) in arrival.frames().take((self.limit - self.written) as usize) {
            sink.write(arrival.interface(frame), frame).map_err(NodeError::new)?;
            self.written += 1;
        }
        Ok(arrival.mask())
    }

    fn tick(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        self.sink.as_mut().map_or(Ok(()), |sink| sink.flush()).map_err(NodeError::new)
    }

    fn finish(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        let sink = match self.sink.take() {
            Some(sink) => sink,
            // Nothing has come: the file is there all the same, whole and without frames.
            None if self.written == 0 => {
                fyke_capture::create_file(&self.path, self.options()).map_err(NodeError::new)?
            }
            None => return Ok(()),
        };
        sink.finish().map(drop).map_err(NodeError::new)
    }

    fn counters(&self) -> Vec<Counter> {
        vec![Counter::count("written", self.written)]
    }
}

fn node(settings: &Settings) -> Result<ToFile, MakeError> {
    Ok(ToFile {
        path: settings.required("expression")?.into(),
        limit: settings.number_or("limit", 0..=u64::MAX, u64::MAX)?,
        snaplen: settings.number_or("snaplen", 1..=262_144, 262_144)? as u32,
        written: 0,
        sink: None,
    })
}

/// The class.
pub const CLASS: Class = Class {
    name: "tofile",
    aliases: &["to_file", "pcapout"],
    summary: "writes frames to the capture file `expression` and passes them",
    parameters: &[
        Parameter { name: "expression", summary: "the file; .pcap, else pcapng" },
        Parameter { name: "limit", summary: "most frames that are written (all)" },
        Parameter { name: "snaplen", summary: "most bytes of a frame (262144)" },
    ],
    make: |settings| Ok(Box::new(node(settings)?)),
    ..Class::NODE
};
