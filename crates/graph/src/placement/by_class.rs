//! Rings by class: the lower space selects the ring, and so the worker, of a frame by the class value that a
//! demultiplexer directly after the device gives it.
//!
//! The selection saves time and decides nothing: the worker evaluates the demultiplexer's texts as always. So a frame
//! of two endpoints, with texts that overlap, reaches both from the ring of one. During an edit a frame may come
//! from another ring than after it. Frames of one endpoint stay in order, because outputs write in the order of time.

use super::{LowerFilter, Wanted};
use crate::runtime::Made;
use fyke_capture::{Interface, Source};
use std::collections::BTreeMap;

/// True if a device has rings by class.
pub(super) fn is_asked(made: &[(u64, Made)], device: u64) -> bool {
    made.iter().any(|(known, made)| match made {
        Made::Source(source) | Made::Shares(source, _) if *known == device => {
            source.interfaces().iter().any(|interface| interface.by_class)
        }
        _ => false,
    })
}

/// Gives the lower filter of a device with such rings the classes of the texts.
pub(super) fn set(
    wanted: &Wanted,
    lower: &dyn LowerFilter,
    interfaces: &[Interface],
) -> Result<(), String> {
    if !interfaces.iter().any(|interface| interface.by_class) {
        return Ok(());
    }
    let [one] = &wanted.consumers[..] else {
        return Err("several nodes follow the device".to_owned());
    };
    if one.classes.is_empty() {
        return Err("the node after the device gives frames no class values".to_owned());
    }
    lower.set_classes(rings(&one.classes))
}

/// The ring of each text, counted from 1; 0 for a text with two class values.
fn rings(classes: &[(String, u32)]) -> BTreeMap<String, u32> {
    let mut rings = BTreeMap::new();
    for (text, class) in classes {
        let ring = class.saturating_add(1);
        let known = *rings.entry(text.clone()).or_insert(ring);
        if known != ring {
            rings.insert(text.clone(), 0);
        }
    }
    rings
}

#[cfg(test)]
mod tests {
    use super::rings;

    #[test]
    fn a_text_with_two_class_values_has_no_ring() {
        let classes = [("udp", 0), ("tcp", 1), ("udp", 2), ("tcp", 1), ("udp", 0)];
        let rings = rings(&classes.map(|(text, class)| (text.to_owned(), class)));
        assert_eq!(
            rings.into_iter().collect::<Vec<_>>(),
            [("tcp".to_owned(), 2), ("udp".to_owned(), 0)]
        );
    }
}
