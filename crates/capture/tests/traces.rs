//! Every capture of the shared folder reads as libpcap reads it: same frames, same bytes, same times.

mod common;

use common::{captures, drain, have_tcpdump, tcpdump_reads, traces};
use fyke_capture::open_file;

/// What libpcap refuses and we accept on purpose: interfaces that differ in link type or snapshot length, sections that
/// differ in byte order, captures without interfaces.
const LIBPCAP_ONLY: [&str; 4] = [
    "different from the type of the first interface",
    "different from the snapshot length of the first interface",
    "sections with different byte orders",
    "no Interface Description Blocks",
];

#[test]
fn same_frames_as_libpcap() {
    let Some(folder) = traces() else { return };
    if !have_tcpdump() {
        return;
    }
    let (mut files, mut frames) = (0, 0);
    for path in captures(&folder) {
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
            // Nonsense fractions of a second are cut to 32 bits when tcpdump writes them.
            let apart = our.timestamp_ns.wrapping_sub(their.timestamp_ns);
            assert_eq!(apart % (1 << 32), 0, "{name}: frame {index}: time");
            assert!(our.data == their.data, "{name}: frame {index}: bytes");
        }
        if !lenient {
            assert_eq!(ours.len(), theirs.len(), "{name}: frames");
            assert_eq!(failed.is_some(), refused.is_some(), "{name}: {failed:?} but {refused:?}");
        }
        files += 1;
        frames += ours.len();
    }
    println!("{files} captures, {frames} frames");
    assert!(files > 0 && frames > 0, "the folder is not empty");
}
