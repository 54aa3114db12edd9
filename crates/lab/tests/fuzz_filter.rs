//! The checks of the fuzz target `filter_equals_libpcap` on seeded input.

use fyke_lab::peers::libpcap::Libpcap;
use fyke_testkit::filter_text::{SPECIAL, Values, filter_text};
use fyke_testkit::random;

#[path = "../../../fuzz/checks/filter_pair.rs"]
mod checks;

#[test]
fn texts_and_frames_are_judged_alike() {
    let libpcap = match Libpcap::load() {
        Ok(libpcap) => libpcap,
        Err(error) => return println!("skipped: {error}"),
    };
    random::rounds(61, |random| {
        let values =
            Values { terms: if random.chance(2) { SPECIAL } else { &[] }, ..Values::common() };
        for _ in 0..20_000 {
            // Ethernet half of the time.
            let any = random.number() as u8;
            let mut data = vec![if random.chance(2) { 0 } else { any }];
            data.extend(filter_text(random, &values).bytes());
            data.push(0);
            let frame = [0, 1, 6, 8, 17, 0x45, 0x60, 0xff];
            data.extend((0..random.below(90)).map(|_| random.pick(&frame)));
            checks::pair(&libpcap, &data);
        }
    });
}
