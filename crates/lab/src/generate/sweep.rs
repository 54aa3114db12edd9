//! The reached rate at each of several frame sizes.

use super::{Contents, Counts, GenerateError, MIN_SIZE, Options, Pair, Sent, Sizes, place, run};
use crate::net::LinkState;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sizes of a sweep. The last is replaced by the longest frame of the interface if that is shorter.
pub const SWEEP_SIZES: [u16; 7] = [64, 128, 256, 512, 1_024, 1_280, 1_520];

/// Result for one size.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Size of the frames in bytes.
    pub size: u16,
    /// Counts of the sender.
    pub sent: Sent,
    /// Frames that arrived at the other end of a pair of our own.
    pub arrived: Option<u64>,
}

/// Sends frames of each size in turn, as the order of the options demands; calls `tell` for each size. Ends early if
/// `stop` is set.
///
/// # Errors
/// [`GenerateError`].
pub fn sweep(
    options: &Options,
    pair: Option<&Pair>,
    stop: &Arc<AtomicBool>,
    mut tell: impl FnMut(&Row),
) -> Result<(), GenerateError> {
    for size in sizes(options, pair)? {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let contents = Contents { sizes: Sizes::Fixed(size), ..options.contents.clone() };
        let options = Options { contents, ..options.clone() };
        let counts = Arc::<Counts>::default();
        let row = match pair {
            Some(pair) => {
                let (sent, arrived) = pair.run(&options, stop, &counts)?;
                Row { size, sent, arrived: Some(arrived) }
            }
            None => Row { size, sent: run(&options, stop, &counts)?, arrived: None },
        };
        tell(&row);
    }
    Ok(())
}

/// Sizes that the interface takes: those of the list, with its longest frame as the last.
fn sizes(options: &Options, pair: Option<&Pair>) -> Result<Vec<u16>, GenerateError> {
    let state = match pair {
        Some(pair) => {
            let interface = pair.interface();
            pair.inside(move || place::check(interface, MIN_SIZE))??
        }
        None => place::check(&options.interface, MIN_SIZE)?,
    };
    Ok(sizes_for(&state))
}

fn sizes_for(state: &LinkState) -> Vec<u16> {
    let allowed = place::longest_of(state);
    let mut sizes: Vec<u16> = SWEEP_SIZES.iter().map(|&size| clipped(size, allowed)).collect();
    sizes.dedup();
    sizes
}

fn clipped(size: u16, allowed: u32) -> u16 {
    u16::try_from(allowed).map_or(size, |allowed| size.min(allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_size_is_the_longest_of_the_interface() {
        let of = |mtu| sizes_for(&LinkState { mtu, ..LinkState::default() });
        assert_eq!(of(1_506), SWEEP_SIZES);
        assert_eq!(of(1_500)[5..], [1_280, 1_514]);
        assert_eq!(of(1_000), [64, 128, 256, 512, 1_014]);
        assert_eq!(of(65_536), SWEEP_SIZES);
    }
}
