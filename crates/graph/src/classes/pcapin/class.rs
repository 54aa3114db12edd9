//! Class `pcapin`: frames of a capture file (pcap, pcapng, gzip, zstd; `-` is standard input). Cost: the file's.

use crate::node::{Class, Kind, MakeError};
use fyke_capture::Source;
use std::path::Path;

/// The class.
pub const CLASS: Class = Class {
    name: "pcapin",
    aliases: &["pcap", "file"],
    summary: "frames of the capture file `expression`",
    kind: Kind::Source,
    check: Some(|settings| settings.required("expression").map(|_| ())),
    open: |settings| {
        let path = Path::new(settings.required("expression")?);
        let source = fyke_capture::open_file(path);
        let source = source.map_err(|error| MakeError::refused("expression", error))?;
        Ok(Box::new(source) as Box<dyn Source>)
    },
    ..Class::NODE
};
