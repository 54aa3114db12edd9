//! The real verifier and program: passes are written to mapped memory, and the kernel evaluates frames.

use fyke_kernel::direct::Access;
use fyke_kernel::{OpenError, Options, Space};
use fyke_pass::{Instruction, Opcode, primitive};
use fyke_testkit::skip::unless_missing;

/// A space, or `None` with a printed reason.
fn space() -> Option<Space> {
    unless_missing(Space::open(Options::default()), OpenError::is_unavailable)
}

/// A build without clang has no program; the error names clang and the remedy.
#[test]
fn without_its_program_the_error_names_what_is_missing() {
    match Space::open(Options::default()) {
        Err(error @ OpenError::NoObject { .. }) => {
            let message = error.to_string();
            assert!(message.contains("install clang"), "{message}");
            println!("{message}");
        }
        // Built with the program; this machine may still refuse to load it.
        Ok(_) | Err(_) => assert!(std::env::var_os("CLANG").is_none_or(|name| name != "no-clang")),
    }
}

#[test]
fn a_store_edits_a_verified_program() {
    let Some(mut space) = space() else { return };
    let mut frame = vec![0; 60];
    (frame[12], frame[13], frame[14]) = (8, 0, 0x45);
    let judge = |space: &Space| space.test_run(&frame, 1).unwrap().returned;
    assert_eq!(judge(&space), u32::MAX, "an empty filter accepts every frame");
    let arp = space.passes().add(&[primitive::ether_arp()]).unwrap();
    assert_eq!(judge(&space), 0);
    let ip = space.passes().add(&[primitive::ether_ip()]).unwrap();
    assert_eq!(judge(&space), u32::MAX);
    assert_eq!(space.passes().accepted(ip), Some(1));
    assert_eq!(space.passes().accepted(arp), Some(0));
    space.passes().remove(ip).unwrap();
    assert_eq!(judge(&space), 0);
    assert_eq!(space.tallies().rejected, 2);
}

/// A client may write any distance between two words. If the second offset overflows, it is outside of the frame, too,
/// and nothing is read there.
#[test]
fn an_offset_that_overflows_is_out_of_bounds() {
    for access in [Access::best(), Access::Copied] {
        let opened = Space::open(Options { access, ..Options::default() });
        let Some(mut space) = unless_missing(opened, OpenError::is_unavailable) else { return };
        let id = space.passes().add(&[primitive::ether_arp()]).unwrap();
        let frame = vec![7; 60];
        let mut verdict_at = |distance: u32| {
            // Neither of the two words is 1; if one is out of bounds, the pass does not hold.
            let mut wild = Instruction::new(Opcode::DPmeq, 20).negated();
            wild.command |= 1 << fyke_pass::layout::COUNT_SHIFT;
            wild.params[..3].copy_from_slice(&[u32::MAX, distance, 1]);
            space.passes().tear(id, 0, wild, || {}).unwrap();
            space.test_run(&frame, 1).unwrap().returned != 0
        };
        assert!(verdict_at(4));
        for end in 1..4_u32 {
            assert!(!verdict_at(end.wrapping_sub(24)), "{access:?}, ends at {end}");
        }
    }
}
