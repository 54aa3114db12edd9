//! Rings by class: the lower space selects the ring, and so the worker, of a frame by the class value that a
//! demultiplexer directly after the device gives it. At the driver, the socket of the worker is its ring.
//!
//! The selection saves time and decides nothing: the worker evaluates the demultiplexer's texts as always. So a frame
//! of two endpoints, with texts that overlap, reaches both from the ring of one. During an edit a frame may come
//! from another ring than after it. Frames of one endpoint stay in order, because outputs write in the order of time.

use super::{LowerFilter, Wanted};
use crate::plan::PlanNode;
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
    lower.set_classes(rings(classes_of(wanted)?))
}

/// The classes of the texts of the one node after a device.
fn classes_of(wanted: &Wanted) -> Result<&[(String, u32)], String> {
    let [one] = &wanted.consumers[..] else {
        return Err("several nodes follow the device".to_owned());
    };
    match &one.classes[..] {
        [] => Err("the node after the device gives frames no class values".to_owned()),
        classes => Ok(classes),
    }
}

/// Tells how the ring of a frame is selected, or why not by its class value.
pub(super) fn in_words(at_driver: bool, selected: &Result<(), String>) -> String {
    match (selected, at_driver) {
        (Ok(()), false) => "the kernel selects the ring of a frame by its class value".to_owned(),
        (Ok(()), true) => {
            "the program at the driver selects the worker of a frame by its class value".to_owned()
        }
        (Err(why), false) => {
            format!("the kernel does not select rings, so one gets every frame: {why}")
        }
        (Err(why), true) => {
            format!(
                "the program at the driver selects the worker of a frame by its addresses: {why}"
            )
        }
    }
}

/// The line of a device that may have such rings.
pub(super) fn describe(device: &PlanNode, wanted: &Wanted) -> Option<String> {
    if !device.settings.flag("classes").unwrap_or(false) {
        return None;
    }
    let at_driver = device.interface_names().any(|name| name.starts_with("xdp:"));
    let selected = match &wanted.all {
        Some(why) => Err(why.clone()),
        None => classes_of(wanted).map(|_classes| ()),
    };
    let words = in_words(at_driver, &selected);
    Some(format!("{}: with several workers, {words}\n", device.name))
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
