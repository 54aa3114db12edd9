//! The check of the fuzz target `ring_memory` on seeded input: counts, places and frames that a writer would not store.

use fyke_testkit::random::Random;

#[path = "../../../fuzz/checks/ring.rs"]
mod checks;

#[test]
fn any_words_in_shared_memory() {
    let (mut random, seed) = Random::seeded(34);
    println!("seed {seed}");
    let mut read = 0;
    for _ in 0..1_000 {
        let steps = 1 + random.below(60);
        let mut data = Vec::new();
        for _ in 0..steps {
            let mut step = random.number().to_le_bytes();
            // Words that steer readers, with values that look possible.
            if random.chance(2) {
                step[1] = random.pick(&[1, 1, 1, 16, 17, 64, 65, 66]);
                step[2] = 0;
                step[3] = random.pick(&[0, 0, 8, 32]);
                (step[6], step[7]) = (0, 0);
            }
            data.extend(step);
        }
        read += checks::hostile(&data);
    }
    assert!(read > 1_000, "{read}: the readers get no further than the counts");
}
