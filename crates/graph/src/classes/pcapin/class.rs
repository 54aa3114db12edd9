//! Class `pcapin`: frames of a capture file (pcap, pcapng, gzip, zstd; `-` is standard input). Cost: the file's.

use crate::node::{Class, Kind, MakeError, Settings};
use fyke_capture::{Interface, Next, Source};
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
    check_edit: |settings| {
        let path = settings.required("expression")?;
        let refused = |why: String| {
            let advice = "a pipe can be read by a graph that is started with it";
            MakeError::refused("expression", format!("{path}: {why}; {advice}"))
        };
        let opened = crate::texts::open_regular(Path::new(path));
        opened.map(drop).map_err(|error| refused(error.to_string()))
    },
    all_interfaces,
    ..Class::NODE
};

/// The interfaces of the whole file, if it is a regular file: a pipe can be read only once.
fn all_interfaces(settings: &Settings) -> Vec<Interface> {
    let regular = |name: &&str| crate::texts::open_regular(Path::new(name)).is_ok();
    let name = settings.text("expression").filter(regular);
    let Some(Ok(mut source)) = name.map(|name| fyke_capture::open_file(Path::new(name))) else {
        return Vec::new();
    };
    // Interfaces after a damaged record are unknown; the source reports the damage when it reads the frames.
    while source.may_have_more_interfaces() && matches!(source.next(), Ok(Next::Frames(..))) {}
    source.interfaces().to_vec()
}
