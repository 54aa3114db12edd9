//! The checks of the fuzz target `filter_texts` on seeded input: texts of the grammar, some with bytes changed, and
//! frames of any bytes.

use fyke_testkit::filter_text::{SPECIAL, Values, filter_text};
use fyke_testkit::random;

#[path = "../../../fuzz/checks/filter.rs"]
mod checks;

#[test]
fn texts_that_are_nearly_right() {
    let values = Values { terms: SPECIAL, ..Values::common() };
    random::rounds(51, |random| {
        for _ in 0..20_000 {
            let mut data = vec![random.number() as u8, random.number() as u8];
            data.extend(filter_text(random, &values).bytes());
            for _ in 0..random.below(3) {
                let place = 2 + random.below(data.len() - 2);
                let Some(byte) = data.get_mut(place) else { continue };
                *byte = random.pick(b"()[]!=<>&|0159abdst:./ \\$-");
            }
            data.push(0);
            let frame = [0, 1, 4, 6, 8, 17, 0x45, 0x60, 0xff];
            data.extend((0..random.below(80)).map(|_| random.pick(&frame)));
            checks::texts(&data);
        }
    });
}
