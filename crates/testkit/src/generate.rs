//! The project's own captures, made by code: the same bytes on every machine, none of them taken from elsewhere.
//!
//! | module | captures |
//! |---|---|
//! | [`scene`] | frames with times, and the files that hold them |
//! | [`talk`] | TCP connections segment by segment, and what a network does to them |
//! | [`payload`] | messages of application protocols |
//! | [`protocols`] | one capture of each protocol: `voip`, `ipv6`, the rest of `mixed` |
//! | [`streams`] | `tcp-streams`: connections with every disorder |
//! | [`ftp`] | `ftp`: control and data connections, with the counts that a tracker must find |
//! | [`fragments`] | `fragments`: IPv4 and IPv6, in every order |
//! | [`tunnels`] | `encapsulation` |
//! | [`links`] | `linktypes` |
//! | [`formats`] | `pcapng` and the variants of pcap |
//! | [`malformed`] | `malformed`: files and frames that lie |
//! | [`mixed`] | `mixed`: some thousand frames of everything |

pub mod formats;
pub mod fragments;
pub mod ftp;
pub mod links;
pub mod malformed;
pub mod mixed;
pub mod payload;
pub mod protocols;
pub mod scene;
pub mod streams;
pub mod talk;
pub mod tunnels;

/// A file of the corpus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureFile {
    /// Folder and name, as `ftp/passive.pcap`.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl CaptureFile {
    /// A file of a folder.
    pub fn new(folder: &str, name: &str, bytes: Vec<u8>) -> CaptureFile {
        CaptureFile { name: format!("{folder}/{name}"), bytes }
    }
}

/// Every file of the corpus, in order of name.
pub fn all() -> Vec<CaptureFile> {
    let makers: [fn() -> Vec<CaptureFile>; 9] = [
        tunnels::files,
        formats::files,
        fragments::files,
        ftp::files,
        links::files,
        malformed::files,
        mixed::files,
        protocols::files,
        streams::files,
    ];
    let mut files: Vec<_> = makers.iter().flat_map(|make| make()).collect();
    files.sort_by(|one, other| one.name.cmp(&other.name));
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn files_are_the_same_every_time_and_their_names_differ() {
        let files = all();
        assert!(files == all());
        let names: BTreeSet<_> = files.iter().map(|file| &file.name).collect();
        assert_eq!(names.len(), files.len());
    }

    #[test]
    fn every_folder_has_captures_and_the_whole_is_small() {
        let files = all();
        for (folder, least) in [
            ("encapsulation", 30),
            ("fragments", 20),
            ("ftp", 10),
            ("ipv6", 5),
            ("linktypes", 40),
            ("malformed", 150),
            ("mixed", 1),
            ("pcapng", 12),
            ("tcp-streams", 10),
            ("voip", 4),
        ] {
            let start = format!("{folder}/");
            let count = files.iter().filter(|file| file.name.starts_with(&start)).count();
            assert!(count >= least, "{folder}: {count} files");
        }
        let bytes: usize = files.iter().map(|file| file.bytes.len()).sum();
        println!("{} files, {bytes} bytes", files.len());
        assert!(bytes < 8 << 20, "{bytes} bytes");
    }
}
