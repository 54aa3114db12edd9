//! The checks of the fuzz target `filter_equals_libpcap` on seeded input.

use fyke_lab::peers::libpcap::Libpcap;
use fyke_testkit::filter_text::{Values, filter_text};
use fyke_testkit::random::Random;

#[path = "../../../fuzz/checks/filter_pair.rs"]
mod checks;

#[test]
fn texts_and_frames_are_judged_alike() {
    let libpcap = match Libpcap::load() {
        Ok(libpcap) => libpcap,
        Err(error) => return println!("skipped: {error}"),
    };
    let (mut random, seed) = Random::seeded(61);
    println!("seed {seed}");
    for _ in 0..20_000 {
        let mut data = filter_text(&mut random, &Values::common()).into_bytes();
        data.push(0);
        let bytes = (0..random.below(90)).map(|_| random.pick(&[0, 1, 6, 8, 17, 0x45, 0x60, 0xff]));
        data.extend(bytes);
        checks::pair(&libpcap, &data);
    }
}
