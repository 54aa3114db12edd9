//! Class `keep`: keeps the last frames in memory, bounded by time and bytes, and passes all of them. Cost: a copy of
//! each frame.

use crate::kept::{Keeper, Kept, KeptLimits};
use crate::node::{
    Arrival, Class, Counter, Emitted, MakeError, Needs, Node, NodeError, Opens, Parameter, Settings,
};
use fyke_frame::Mask;
use std::time::Duration;

/// Most bytes unless another number is given.
const BYTES: u64 = 1 << 30;

struct Keep {
    kept: Kept,
    keeper: Keeper,
}

impl Node for Keep {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        self.keeper.keep(arrival);
        Ok(arrival.mask())
    }

    fn tick(&mut self, _emitted: &mut Emitted) -> Result<(), NodeError> {
        self.keeper.tick();
        Ok(())
    }

    fn finish(&mut self, _emitted: &mut Emitted) -> Result<(), NodeError> {
        self.keeper.tick();
        Ok(())
    }

    fn kept(&self) -> Option<&Kept> {
        Some(&self.kept)
    }

    fn counters(&self) -> Vec<Counter> {
        let (frames, bytes) = self.kept.size();
        vec![
            Counter::count("kept_frames", frames as u64),
            Counter::count("kept_bytes", bytes as u64),
        ]
    }
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let seconds = settings.number_or("seconds", 1..=31_536_000, 0)?;
    let bytes = settings.number_or("bytes", 1_000_000..=4_000_000_000_000, BYTES)?;
    let kept = Kept::new(KeptLimits {
        frames: usize::MAX,
        bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        age: (seconds > 0).then(|| Duration::from_secs(seconds)),
        per_second: 0,
    });
    Ok(Box::new(Keep { keeper: kept.keeper(), kept }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "keep",
    summary: "keeps the last frames in memory, for `fyke ctl save`, and passes all",
    parameters: &[
        Parameter { name: "seconds", summary: "age of the oldest kept frame (any)" },
        Parameter { name: "bytes", summary: "most bytes of kept frames (1 GiB)" },
    ],
    repeatable: true,
    needs: |_| Needs::All("keeps every frame"),
    make,
    whole: Some("keeps frames in the memory of the process"),
    opens: Opens::nothing,
    ..Class::NODE
};
