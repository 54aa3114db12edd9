//! Every capture of the corpus reads as with libpcap: equal frames, bytes and times.

mod common;

use common::{captures, drain, have_tcpdump, tcpdump_reads};
use fyke_capture::open_file;
use fyke_testkit::generate::formats;

/// Captures that libpcap refuses and fyke accepts on purpose: interfaces that differ in link type or snapshot length,
/// sections that differ in byte order (the length 28 of the second header, read in the wrong order), captures without
/// interfaces; and link types without a name in tcpdump.
const LIBPCAP_ONLY: [&str; 6] = [
    "different from the type of the first interface",
    "different from the snapshot length of the first interface",
    "sections with different byte orders",
    "block size 469762048 > maximum",
    "no Interface Description Blocks",
    "unknown data link type",
];

#[test]
fn same_frames_as_libpcap() {
    if !have_tcpdump() {
        return;
    }
    let (mut files, mut frames, mut differences) = (0, 0, Vec::new());
    for path in captures() {
        let name = path.display();
        let (theirs, refused) = tcpdump_reads(&path);
        let (ours, failed) = match open_file(&path) {
            Ok(mut source) => drain(&mut source),
            Err(error) => (Vec::new(), Some(error)),
        };
        let lenient =
            refused.as_ref().is_some_and(|text| LIBPCAP_ONLY.iter().any(|t| text.contains(t)));
        assert!(ours.len() >= theirs.len(), "{name}: {} of {} frames", ours.len(), theirs.len());
        for (index, (our, their)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(our.wire_len, their.wire_len, "{name}: frame {index}: length");
            // tcpdump cuts invalid fractions of a second to 32 bits when it writes them.
            let apart = our.timestamp_ns.wrapping_sub(their.timestamp_ns);
            assert_eq!(apart % (1 << 32), 0, "{name}: frame {index}: time");
            assert!(our.data == their.data, "{name}: frame {index}: bytes");
        }
        let alike = ours.len() == theirs.len() && failed.is_some() == refused.is_some();
        if !lenient && !alike {
            let (our, their) = (ours.len(), theirs.len());
            differences.push(format!("{name}: {our} {failed:?} but {their} {refused:?}"));
        }
        files += 1;
        frames += ours.len();
    }
    println!("{files} captures, {frames} frames");
    assert!(differences.is_empty(), "{differences:#?}");
    assert!(files > 300 && frames > 10_000, "{files} captures, {frames} frames");
}

/// A compressed capture has the frames of the plain one; a truncated one has the first of them, and an error.
#[test]
fn compressed_captures_are_read_as_they_are_and_as_far_as_they_go() {
    let plain = formats::sample().records;
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in formats::compressed() {
        let path = folder.path().join(name);
        let steps = (0..bytes.len()).step_by(5).chain([bytes.len() - 1]);
        for cut in steps.chain([bytes.len()]) {
            std::fs::write(&path, &bytes[..cut]).expect("written");
            let (frames, failed) = match open_file(&path) {
                Ok(mut source) => drain(&mut source),
                Err(error) => (Vec::new(), Some(error)),
            };
            let same = frames.iter().zip(&plain).all(|(frame, plain)| frame.data == plain.data);
            assert!(same, "{name} cut at {cut}");
            match cut == bytes.len() {
                true => assert!(failed.is_none() && frames.len() == plain.len(), "{name}"),
                false => assert!(failed.is_some(), "{name} cut at {cut}: nothing is said"),
            }
        }
    }
}
