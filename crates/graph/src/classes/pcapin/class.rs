//! Class `pcapin`: frames of capture files (pcap, pcapng, gzip, zstd, lz4; `-` is standard input), of several merged by
//! time. Cost: the files'.

use crate::node::{Class, Kind, MakeError, Opens, Parameter, Settings};
use fyke_capture::{FileOptions, FileSource, Interface, MAX_FILES, MergedFiles, Next, Source};
use std::path::Path;

/// The files.
fn files(settings: &Settings) -> Result<Vec<&Path>, MakeError> {
    settings.required("expression")?;
    let pairs = settings.pairs().iter().filter(|(name, _)| name == "expression");
    let files: Vec<&Path> = pairs.map(|(_, file)| Path::new(file)).collect();
    if files.len() > MAX_FILES {
        let count = files.len();
        let why = format!("{count} files are more than the {MAX_FILES} that one node can read");
        return Err(MakeError::new("expression", why));
    }
    if files.iter().filter(|file| file.as_os_str() == "-").count() > 1 {
        let why = "standard input (`-`) can be read only once; give it once";
        return Err(MakeError::new("expression", why));
    }
    Ok(files)
}

fn open(settings: &Settings) -> Result<Box<dyn Source>, MakeError> {
    let files = files(settings)?;
    let options = FileOptions { named: settings.flag("named")?, ..FileOptions::default() };
    let source = match files[..] {
        [file] => FileSource::open(file, options).map(|one| Box::new(one) as Box<dyn Source>),
        _ => MergedFiles::open(&files, &options).map(|all| Box::new(all) as Box<dyn Source>),
    };
    source.map_err(|error| MakeError::refused("expression", error))
}

/// The class.
pub const CLASS: Class = Class {
    name: "pcapin",
    aliases: &["pcap", "file"],
    summary: "frames of the capture file `expression`; of several, merged by time",
    kind: Kind::Source,
    parameters: &[
        Parameter { name: "expression", summary: "the file; several are merged by time" },
        Parameter {
            name: "named",
            summary: "y: an interface without a name gets the name of its file",
        },
    ],
    check: Some(|settings| {
        settings.flag("named")?;
        files(settings).map(drop)
    }),
    open,
    check_edit: |settings| {
        for file in files(settings)? {
            let refused = |why: String| {
                let advice = "a pipe can be read by a graph that is started with it";
                MakeError::refused("expression", format!("{}: {why}; {advice}", file.display()))
            };
            let opened = crate::texts::open_regular(file);
            opened.map(drop).map_err(|error| refused(error.to_string()))?;
        }
        Ok(())
    },
    all_interfaces,
    opens: |_| Opens::File,
    ..Class::NODE
};

/// The interfaces of the whole files, if they are regular files: a pipe can be read only once.
fn all_interfaces(settings: &Settings) -> Vec<Interface> {
    let Ok(files) = files(settings) else { return Vec::new() };
    if !files.iter().all(|file| crate::texts::open_regular(file).is_ok()) {
        return Vec::new();
    }
    // No threads: the process may give up its rights after this.
    let named = settings.flag("named").unwrap_or(false);
    let options = FileOptions { read_ahead: false, named, ..FileOptions::default() };
    let Ok(mut source) = MergedFiles::open(&files, &options) else { return Vec::new() };
    // Interfaces after a damaged record are unknown; the source reports the damage when it reads the frames.
    while source.may_have_more_interfaces() && matches!(source.next(), Ok(Next::Frames(..))) {}
    source.interfaces().to_vec()
}
