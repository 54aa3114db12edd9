//! Class `bpf`: passes the frames that a pcap filter text accepts, evaluated by the pass engine, editable while it
//! runs.
//!
//! One text serves all link types: it is lowered for each link type that appears; frames of a link type that it does
//! not fit are rejected and counted. An edit, by the control socket or by a later tracker, takes effect at the next
//! frame that the node evaluates; with `lookback` it also applies to frames that the source still holds. Cost: the
//! pass engine's, about 1 ns a frame for small filters.

mod look_back;

use crate::{credits, cuts};
use crate::fits::unfit;
use crate::kept::{Keeper, Kept};
use crate::node::{
    Accepted, Arrival, Class, Counter, Emitted, MakeError, Needs, Node, NodeError, Opens,
    Parameter, Settings, accepted,
};
use fyke_filter::{Options, Reading};
use fyke_filters::{FilterError, FilterReader, FilterSet, Tags};
use fyke_frame::{LinkType, Mask};
use look_back::LookBack;

struct Filter {
    reader: FilterReader,
    filters: FilterSet,
    look_back: Option<LookBack>,
    /// Keeps some of the frames that arrive.
    keeper: Option<Keeper>,
    /// Leaves the passes that accepted frames for later nodes.
    credits: bool,
    /// True if the filters belong to the node of another worker, which shows and edits them.
    is_copy: bool,
}

impl Node for Filter {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        self.reader.refresh();
        if let Some(keeper) = &mut self.keeper {
            keeper.keep(arrival);
        }
        if let Some(look_back) = &mut self.look_back
            && look_back.reach_back(arrival, &mut self.reader).map_err(NodeError::new)?
        {
            arrival.cut(arrival.position());
            return Ok(Mask::EMPTY);
        }
        let passed = self.reader.evaluate(arrival.batch(), arrival.mask());
        let passed = passed.map_err(NodeError::new)?;
        if self.credits {
            credits::leave(arrival.serial(), &self.reader, passed.iter());
        }
        cuts::leave(arrival, self.reader.snap_lengths());
        if let Some(look_back) = &mut self.look_back {
            look_back.judged(arrival, &self.reader, passed);
        }
        Ok(passed)
    }

    fn settle(&mut self, frames: Mask) {
        self.reader.count(frames);
        if let Some(look_back) = &mut self.look_back {
            look_back.settle(frames);
        }
    }

    fn counters(&self) -> Vec<Counter> {
        unfit(self.reader.unfit()).collect()
    }

    fn tick(&mut self, _emitted: &mut Emitted) -> Result<(), NodeError> {
        self.keeper.iter_mut().for_each(Keeper::tick);
        Ok(())
    }

    fn keep(&mut self, kept: &Kept) {
        self.keeper = Some(kept.keeper());
    }

    fn filters(&self) -> Option<&FilterSet> {
        (!self.is_copy).then_some(&self.filters)
    }

    fn for_worker(&self) -> Option<Box<dyn Node>> {
        let look_back = self.look_back.as_ref().map(|_| LookBack::default());
        let (mut reader, filters, credits) =
            (self.filters.reader(), self.filters.clone(), self.credits);
        if credits {
            reader.report();
        }
        Some(Box::new(Filter { reader, filters, look_back, keeper: None, credits, is_copy: true }))
    }

    fn change(&mut self, settings: &Settings) -> bool {
        self.is_copy || self.filters.set(settings.text("expression").unwrap_or_default()).is_ok()
    }
}

/// Ways to treat VLAN tags and MPLS labels.
const TAGS: &[&str] = &["read", "skip"];

fn options(settings: &Settings) -> Result<Options, MakeError> {
    let defaults = Options::default();
    let snaplen = u64::from(defaults.snaplen);
    Ok(Options {
        link: settings.link().unwrap_or(LinkType::EN10MB),
        snaplen: settings.number_or("snaplen", 1..=snaplen, snaplen)? as u32,
        live: settings.flag("live")?,
        incoming_only: settings.incoming_only(),
        reading: if settings.flag("scoped")? { Reading::Scoped } else { Reading::Compat },
        netmask: Some(settings.netmask()),
        resolve: if settings.flag("names")? { Some(fyke_filter::system_resolver) } else { None },
        ..defaults
    })
}

/// Accepts a text that fits one of the known link types, or any link type while no source is open.
fn check(settings: &Settings) -> Result<(), MakeError> {
    let options = options(settings)?;
    if settings.pairs().iter().filter(|(name, _)| name == "expression").count() > 1 {
        let why = "it has one expression; join several by `or`";
        return Err(MakeError::new("expression", why));
    }
    settings.flag("lookback")?;
    settings.choice("tags", TAGS)?;
    let text = settings.text("expression").unwrap_or_default();
    settings.inputs().check(text, &options).map_err(|refused| {
        let varies = refused.varies;
        MakeError { varies, ..MakeError::new("expression", FilterError::from(refused.error)) }
    })
}

/// The filters of a node with these settings.
fn filters_of(settings: &Settings) -> Result<FilterSet, MakeError> {
    let tags = if settings.choice("tags", TAGS)? == 0 { Tags::Read } else { Tags::Skip };
    let filters = FilterSet::over(settings.inputs(), options(settings)?, tags);
    let text = settings.text("expression").unwrap_or_default();
    filters.set(text).map_err(|error| {
        let varies = matches!(error, FilterError::Text(_));
        MakeError { varies, ..MakeError::new("expression", error) }
    })?;
    Ok(filters)
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let filters = filters_of(settings)?;
    let look_back = settings.flag("lookback")?.then(LookBack::default);
    let (mut reader, credits) = (filters.reader(), settings.flag("credits")?);
    if credits {
        reader.report();
    }
    Ok(Box::new(Filter { reader, filters, look_back, keeper: None, credits, is_copy: false }))
}

/// Frames that change if tags are skipped: those in which the IP header does not follow the link header. The kernel
/// evaluates texts with the tags that the device has left in a frame.
const WITH_TAGS: &str = "not ip and not ip6";

fn needs(settings: &Settings) -> Needs {
    let is_set = |flag| settings.flag(flag).unwrap_or(false);
    if is_set("scoped") {
        return Needs::All("has scoped texts, which need all fragments");
    }
    if !is_set("live") {
        return Needs::All("is read as for a file, by live=n or because it gets frames of a file");
    }
    let skips = settings.choice("tags", TAGS).is_ok_and(|choice| choice > 0);
    Needs::Filters { also: skips.then(|| WITH_TAGS.to_owned()) }
}

/// Frames that the text accepts, if it is read in the compat mode and names no hosts.
fn accepts(settings: &Settings) -> Option<Vec<Accepted>> {
    let options = options(settings).ok()?;
    let plain = options.reading == Reading::Compat && options.resolve.is_none();
    let reads_tags = settings.choice("tags", TAGS).ok()? == 0;
    if !plain || !reads_tags || settings.flag("lookback").ok()? {
        return None;
    }
    let text = fyke_filter::compile(settings.text("expression")?, &options).ok()?;
    accepted::alternatives(text.root())
}

/// The class.
pub const CLASS: Class = Class {
    name: "bpf",
    aliases: &["filter", "bpf_filter"],
    summary: "passes frames that the pcap filter text `expression` accepts; all without one",
    parameters: &[
        Parameter { name: "expression", summary: "the filter text" },
        Parameter { name: "scoped", summary: "y: read by meaning, whatever tags and tunnels" },
        Parameter { name: "live", summary: "y: read as for a capture (default after devices)" },
        Parameter { name: "tags", summary: "skip: as if frames had no VLAN tags and MPLS labels" },
        Parameter { name: "snaplen", summary: "bytes that `accept` returns (262144)" },
        Parameter { name: "credits", summary: "y: for the accepting pass in `print` and `tofile`" },
        Parameter { name: "names", summary: "y: look up the names of hosts" },
        Parameter { name: "lookback", summary: "y: edits reach frames that the source holds" },
    ],
    repeatable: true,
    cuts: |settings| settings.flag("lookback").unwrap_or(false),
    editable: true,
    needs,
    filters: Some(|settings| filters_of(settings).ok()),
    accepts,
    live: &["expression"],
    check: Some(check),
    make,
    parallel: true,
    // Names of hosts are looked up in the network.
    opens: |settings| match settings.flag("names") {
        Ok(false) => Opens::Nothing,
        _ => Opens::Network,
    },
    ..Class::NODE
};
