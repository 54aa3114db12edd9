//! Placement: which filters of a graph also run in a lower space, before frames reach the graph.
//!
//! A filter directly after a device, alone or after a Bloom pre-filter, is placed in the space if nothing else needs
//! the frames that it rejects. The space passes a superset ([`Superset`]), and the node decides under which epoch a
//! frame is evaluated. What the space rejects counts as seen and rejected at the device. An edit of the graph that
//! gives the device another consumer opens the lower filter before the edit takes effect.
//!
//! Source: FFPF, sections 2.1 (flowspaces) and 2.3 (placement: the fastest space that offers the class).

use crate::plan::{Plan, PlanNode};
use crate::runtime::Made;
use fyke_capture::{Interface, SocketFilter};
use fyke_filter::Options;
use fyke_filters::{FilterSet, Superset};
use std::sync::Arc;

/// A space below the graph.
pub trait Space {
    /// Makes a filter for the frames of an interface; it passes everything until texts arrive. `reading` is how the
    /// node reads its texts.
    ///
    /// # Errors
    /// The reason why the space cannot filter here.
    fn filter(
        &self,
        interface: &Interface,
        reading: Options,
    ) -> Result<Arc<dyn LowerFilter>, String>;
}

/// A filter of a lower space.
pub trait LowerFilter: Superset + SocketFilter {
    /// Reason why it passes everything at the moment; `None` if its texts decide.
    fn passes_all(&self) -> Option<String>;
}

/// Place of a filter.
#[derive(Clone)]
pub struct Placement {
    /// Key of the device's node.
    pub device: u64,
    /// Key of the filter's node; 0 if the device has none.
    pub filter: u64,
    /// The filter in the lower space, or the reason why there is none.
    pub lower: Result<Arc<dyn LowerFilter>, String>,
}

impl Placement {
    /// Reason why the filter does not run in the lower space now; `None` if it does.
    pub fn why_not_lower(&self) -> Option<String> {
        match &self.lower {
            Ok(lower) => lower.passes_all(),
            Err(why) => Some(why.clone()),
        }
    }
}

/// Index of the filter after a device, if nothing needs the frames that it rejects.
fn filter_after(plan: &Plan, device: usize) -> Result<usize, String> {
    let mut at = device;
    loop {
        let fed = |node: &PlanNode| node.feeds.iter().any(|feed| feed.from == at);
        let mut after = plan.nodes.iter().enumerate().filter(|(_, node)| fed(node));
        let next = after.next();
        if after.next().is_some() {
            return Err(format!("several nodes need the frames of {}", plan.nodes[at].name));
        }
        let Some((index, node)) = next else { return Err("no filter follows the device".into()) };
        let [feed] = &node.feeds[..] else {
            return Err(format!("{} also has other frames", node.name));
        };
        if node.inverted || feed.class.is_some() {
            return Err(format!("{} needs frames that a filter rejects", node.name));
        }
        match node.class.name {
            "bpf" if node.settings.flag("lookback").unwrap_or(true) => {
                return Err(format!("{} looks back at frames that it rejected", node.name));
            }
            "bpf" => return Ok(index),
            "bloom" if !node.exported => at = index,
            _ => return Err(format!("{} comes before a filter and needs all frames", node.name)),
        }
    }
}

/// Describes where the filters after devices would run, a line for each device; opens nothing.
pub fn describe(plan: &Plan, workers: usize) -> String {
    let devices = plan.nodes.iter().enumerate().filter(|(_, node)| node.class.name == "device");
    let line = |(index, device): (usize, &PlanNode)| {
        let name = &device.name;
        match placeable(plan, index, workers) {
            Ok(filter) => {
                format!("{}: in the kernel, too, if it can filter there\n", plan.nodes[filter].name)
            }
            Err(why) => format!("{name}: the kernel passes every frame: {why}\n"),
        }
    };
    devices.map(line).collect()
}

/// The filter of a device that can be placed lower, by its index.
fn placeable(plan: &Plan, device: usize, workers: usize) -> Result<usize, String> {
    let filter = filter_after(plan, device)?;
    if workers > 1 {
        return Err("every worker has filters of its own".to_owned());
    }
    let settings = &plan.nodes[filter].settings;
    let is_set = |flag| settings.flag(flag).unwrap_or(false);
    let why_not = match settings.text("tags") {
        _ if is_set("scoped") => "a scoped text needs all fragments",
        Some("skip") => "the text is read as if frames had no tags",
        _ if is_set("live") => return Ok(filter),
        _ => "the text is read as for a file; live=y reads it as for a capture",
    };
    Err(why_not.to_owned())
}

/// Places the filters of a graph that is made but not started.
pub(crate) fn place(
    plan: &Plan,
    made: &mut [(u64, Made)],
    space: &dyn Space,
    workers: usize,
) -> Vec<Placement> {
    let devices = plan.nodes.iter().enumerate().filter(|(_, node)| node.class.name == "device");
    let mut placements = Vec::new();
    for (index, device) in devices {
        let found = placeable(plan, index, workers);
        let filter = found.as_ref().map_or(0, |&index| plan.nodes[index].key);
        let lower = match found {
            Ok(_) => lower(made, device.key, filter, space),
            Err(why) => Err(why),
        };
        placements.push(Placement { device: device.key, filter, lower });
    }
    placements
}

fn lower(
    made: &mut [(u64, Made)],
    device: u64,
    filter: u64,
    space: &dyn Space,
) -> Result<Arc<dyn LowerFilter>, String> {
    let set = made.iter().find_map(|(key, made)| match made {
        Made::Node(node) if *key == filter => node.filters().cloned(),
        _ => None,
    });
    let set: FilterSet = set.ok_or("the filter cannot be edited")?;
    // A program that accepts everything costs more than none.
    if set.is_empty() {
        return Err("the capture started without a filter".to_owned());
    }
    let source = made.iter_mut().find_map(|(key, made)| match made {
        Made::Source(source) if *key == device => Some(source),
        _ => None,
    });
    let source = source.ok_or("the device is not a source")?;
    let [interface] = source.interfaces() else {
        return Err("the device has several interfaces".to_owned());
    };
    let (reading, _) = set.reading();
    let lower = space.filter(&interface.clone(), Options { link: interface.link, ..reading })?;
    set.set_superset(Arc::clone(&lower) as Arc<dyn Superset>);
    source.set_filter(Arc::clone(&lower) as Arc<dyn SocketFilter>).map_err(|error| {
        set.unset_superset();
        error.to_string()
    })?;
    Ok(lower)
}

/// Opens the lower filters that an edited graph no longer allows, before it takes effect.
pub(crate) fn open_for(plan: &Plan, placements: &mut [Placement]) {
    for placement in placements {
        let device = plan.nodes.iter().position(|node| node.key == placement.device);
        let stays = device.is_some_and(|device| {
            filter_after(plan, device).is_ok_and(|at| plan.nodes[at].key == placement.filter)
        });
        if let (Ok(lower), false) = (&placement.lower, stays) {
            lower.open_for_good("the graph was edited");
        }
    }
}
