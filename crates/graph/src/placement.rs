//! Placement: which filters of a graph also run in a lower space, before frames reach the graph.
//!
//! The space passes what any consumer of a device needs, a superset of what the graph accepts ([`Superset`]); the
//! nodes decide under which epoch a frame is evaluated. What the space rejects counts as seen and rejected at the
//! device.
//!
//! | directly after the device, or after Bloom pre-filters there | passes |
//! |---|---|
//! | filters | what they accept, what their trackers expect, what look-back must find ([`Node::held`]) |
//! | demultiplexers | what one of their texts accepts |
//! | anything else | every frame |
//!
//! Of a chain of filters all run there, and the space counts what each rejects (`placement/chain.rs`). Where it cannot,
//! only the first one does: the next one gets the frames that it accepts, which it has to count.
//!
//! The rules of a Bloom pre-filter that all frames of a device reach may be there, too ([`RulesTap`]).
//!
//! Every class declares what it needs ([`Class::needs`]). An edit of the graph widens the lower filter before it takes
//! effect and narrows it afterwards. Cost: O(nodes · edges) for an edit of the graph.
//!
//! Source: FFPF, sections 2.1 (flowspaces) and 2.3 (placement: the fastest space that offers the class).
//!
//! [`Node::held`]: crate::node::Node::held
//! [`Class::needs`]: crate::node::Class::needs

mod by_class;
mod chain;
mod describe;
mod several;
mod tap;
mod wanted;

use crate::node::Node;
use crate::plan::{Plan, PlanNode};
use crate::rules::RuleSet;
use crate::runtime::Made;
pub(crate) use chain::Below;
use chain::{Chained, Given};
use describe::NodePlace;
pub use describe::describe;
use fyke_capture::{Interface, SocketFilter, Source};
use fyke_filter::Options;
use fyke_filters::{FilterSet, Member, Superset, Union};
use several::Several;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
pub use tap::{NoRules, OwnedArrays, PartPlace, RulesTap, RulesWanted, TapPlace};
pub(crate) use wanted::Held;
use wanted::{NETMASKS, Wanted, WantedBy, netmask_of};

/// A space below the graph: the kernel, at a socket or at a driver, or a service for its readers.
///
/// | what a space does | by |
/// |---|---|
/// | offers a class, or the reason why not | the result of [`filter`](Space::filter) or [`rules`](Space::rules) |
/// | makes it run | [`SocketFilter::take_socket`], [`SocketFilter::take_driver`] |
/// | edits it | [`Superset::widen`] before an edit takes effect, [`Superset::narrow`] after it |
/// | counts | [`SocketFilter::rejected`], [`LowerFilter::rejected_at`] |
/// | closes it | when its last owner drops it, or the kernel when the process has ended |
pub trait Space {
    /// Makes the rules of a Bloom pre-filter that gets the frames of an interface: in the space if possible, else for
    /// user space.
    ///
    /// # Errors
    /// The reason why there are no rules of the interface.
    fn rules(
        &self,
        _interface: &Interface,
        _rules: &RuleSet,
        _wanted: &RulesWanted,
    ) -> Result<Arc<dyn RulesTap>, NoRules> {
        Err(NoRules::Alone("it has no rules".to_owned()))
    }

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

    /// The form in which it runs, and why not in a faster one.
    fn form(&self) -> String;

    /// Describes the program that evaluates the texts, if there are several kinds; `None` while it passes all.
    fn program(&self) -> Option<String> {
        None
    }

    /// Number of frames that it rejected at each interface, if there are several; `None` where they are not counted.
    fn rejected_at(&self) -> Vec<(&str, Option<u64>)> {
        Vec::new()
    }

    /// The memory of its counters, for a process after this one that attaches another filter; empty if it has none.
    fn count_maps(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// Name of the filtering part, for people.
    fn place(&self) -> &'static str {
        "the kernel"
    }

    /// Selects the ring of a frame by the class of the text that accepts it, for an interface with several rings
    /// ([`Interface::by_class`]); class 1 is the first ring, 0 none. Frames that no text accepts, or one without a
    /// class, are distributed by conversation.
    ///
    /// # Errors
    /// The reason why it cannot; the first ring then has all frames.
    fn set_classes(&self, _classes: BTreeMap<String, u32>) -> Result<(), String> {
        Err(format!("{} does not select them", self.place()))
    }

    /// Filters only the frames that pass a tap; called before it gets a socket, which it then gives to the tap.
    ///
    /// # Errors
    /// The reason why it cannot.
    fn run_after(&self, _tap: &Arc<dyn RulesTap>) -> Result<(), String> {
        Err("the filter in the kernel cannot run after them".to_owned())
    }
}

/// Place of the filters after a device.
#[derive(Clone)]
pub struct Placement {
    /// Key of the device's node.
    pub device: u64,
    /// Names of its interfaces.
    pub names: Vec<String>,
    /// The filter in the lower space, or the reason why there is none.
    pub lower: Result<Arc<dyn LowerFilter>, String>,
    /// Rules of a node after the device that the lower space has, too.
    pub tap: Option<TapPlace>,
    /// The filters and demultiplexers after the device, as the graph allows them to run.
    places: Vec<NodePlace>,
    /// For rings by class: the reason why the lower space does not select them, if it does not.
    pub by_class: Option<Result<(), String>>,
    at_driver: bool,
    members: Option<Members>,
}

/// The consumers before a lower filter.
#[derive(Clone)]
struct Members {
    union: Union,
    lower: Arc<dyn LowerFilter>,
    interfaces: Vec<Interface>,
    netmask: u32,
    consumers: Vec<Consumer>,
    /// The filters that run below as a chain, or the reason why the first of them does alone.
    chain: Option<Result<Chained, String>>,
}

/// A node that gets the frames of a device, and what the lower filter passes for it.
#[derive(Clone)]
struct Consumer {
    /// Key of the node.
    key: u64,
    /// Filters of the node, if it has some that are not in a chain.
    filters: Option<(Member, Given)>,
    texts: Member,
    /// The texts of that member.
    wanted: BTreeSet<String>,
}

impl Placement {
    /// Reason why the filters do not run in the lower space now; `None` if they do.
    pub fn why_not_lower(&self) -> Option<String> {
        let of_graph = self.members.as_ref().and_then(|members| members.union.passes_all());
        match &self.lower {
            Ok(lower) => of_graph.or_else(|| lower.passes_all()),
            Err(why) => Some(why.clone()),
        }
    }

    /// Describes how the ring of a frame is selected, for rings by class.
    pub fn rings_in_words(&self) -> Option<String> {
        let words = by_class::in_words(self.at_driver, self.by_class.as_ref()?);
        Some(format!("{}: {words}", self.names.join(", ")))
    }

    /// Names of the filters and demultiplexers that run in user space only while the lower space filters, each with the
    /// reason.
    pub fn in_user_space(&self) -> Vec<(&str, String)> {
        let chain = self.members.as_ref().and_then(|members| members.chain.as_ref());
        let why_alone = chain.and_then(|chain| match chain {
            Ok(chained) => chained.chain.reason(),
            Err(why) => Some(why.clone()),
        });
        let consumers = || self.members.iter().flat_map(|members| &members.consumers);
        let why_not = |place: &NodePlace| match (&place.why_not, &why_alone) {
            (Some(why), _) => Some(why.clone()),
            (None, Some(why)) if consumers().all(|one| one.key != place.key) => {
                Some(chain::counts(why))
            }
            _ => None,
        };
        let places = self.places.iter();
        places.filter_map(|place| Some((place.name.as_str(), why_not(place)?))).collect()
    }

    /// The counts of its chain of filters, if it has one.
    fn below(&self) -> Option<Below> {
        match self.members.as_ref()?.chain.as_ref()? {
            Ok(chained) => Some(chained.below(self.device)),
            Err(_) => None,
        }
    }

    fn text(&self) -> String {
        let form = self.lower.as_ref().map(|lower| format!(" ({})", lower.form()));
        let form = form.unwrap_or_default();
        let place = self.lower.as_ref().map_or("the kernel", |lower| lower.place());
        let except = self.in_user_space().into_iter().map(|(name, why)| format!("{name} ({why})"));
        let except: Vec<_> = except.collect();
        match self.why_not_lower() {
            None if !except.is_empty() => {
                format!("the filters run in {place}, too{form}, except {}", except.join(", "))
            }
            None => format!("the filters run in {place}, too{form}"),
            Some(why) => {
                let has_rules = self.tap.as_ref().is_some_and(TapPlace::is_below);
                let rules = if has_rules { " that passes the rules" } else { "" };
                format!("{place} passes every frame{rules}{form}: {why}")
            }
        }
    }

    /// Number of frames that the lower filter rejected at each interface.
    fn rejected_at(&self) -> Vec<(String, Option<u64>)> {
        let Ok(lower) = &self.lower else { return Vec::new() };
        match &self.names[..] {
            [name] => vec![(name.clone(), lower.rejected())],
            _ => lower
                .rejected_at()
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count))
                .collect(),
        }
    }
}

/// Describes where the filters after devices run; `None` without a device. Interfaces are named where they differ.
pub fn in_words(placements: &[Placement]) -> Option<String> {
    let texts: Vec<_> = placements.iter().map(Placement::text).collect();
    let (first, rest) = texts.split_first()?;
    let text = match rest.iter().all(|text| text == first) {
        true => first.clone(),
        false => {
            let named = placements.iter().zip(&texts);
            let named =
                named.map(|(placement, text)| format!("{}: {text}", placement.names.join(", ")));
            named.collect::<Vec<_>>().join("; ")
        }
    };
    Some(text + &rejected(placements))
}

/// Describes the programs that evaluate the texts; `None` if there is only one kind. Interfaces are named where they
/// differ.
pub fn programs_in_words(placements: &[Placement]) -> Option<String> {
    let filtering = placements.iter().filter(|placement| placement.why_not_lower().is_none());
    let programs: Vec<_> = filtering
        .filter_map(|placement| {
            Some((placement.names.join(", "), placement.lower.as_ref().ok()?.program()?))
        })
        .collect();
    let (_, first) = programs.first()?;
    if programs.iter().all(|(_, text)| text == first) {
        return Some(first.clone());
    }
    let named: Vec<_> = programs.iter().map(|(names, text)| format!("{names}: {text}")).collect();
    Some(named.join("; "))
}

/// Describes how many frames were rejected at each of several interfaces.
fn rejected(placements: &[Placement]) -> String {
    if placements.iter().map(|placement| placement.names.len()).sum::<usize>() < 2 {
        return String::new();
    }
    let filtering = placements.iter().filter(|placement| placement.why_not_lower().is_none());
    let counts: Vec<_> = filtering.flat_map(Placement::rejected_at).collect();
    let one = |(name, count): &(String, Option<u64>)| match count {
        Some(count) => format!("{name} {count}"),
        None => format!("{name} not counted"),
    };
    let counts: Vec<_> = counts.iter().map(one).collect();
    if counts.is_empty() {
        String::new()
    } else {
        format!("; rejected there: {}", counts.join(", "))
    }
}

fn devices(plan: &Plan) -> impl Iterator<Item = (usize, &PlanNode)> {
    plan.nodes.iter().enumerate().filter(|(_, node)| node.class.name == "device")
}

/// Collects from nodes that are not connected yet what must be held.
pub(crate) fn held(made: &[(u64, Made)]) -> Held {
    let node = |(key, made): &(u64, Made)| match made {
        Made::Node(node) => Some((*key, node.held())),
        Made::Source(_) | Made::Shares(..) => None,
    };
    made.iter().filter_map(node).collect()
}

fn node_of(made: &[(u64, Made)], key: u64) -> Option<&dyn Node> {
    made.iter().find_map(|(known, made)| match made {
        Made::Node(node) if *known == key => Some(&**node),
        _ => None,
    })
}

/// Places the filters of a graph that is made but not started.
pub(crate) fn place(plan: &Plan, made: &mut [(u64, Made)], space: &dyn Space) -> Vec<Placement> {
    let held = held(made);
    let make = |interface: &Interface, rules: &RuleSet, wanted: &RulesWanted| {
        space.rules(interface, rules, wanted)
    };
    let mut taps = tap::make_all(plan, made, &make);
    let mut placements = Vec::new();
    for (index, device) in devices(plan) {
        let at = taps.iter().position(|(device, _)| *device == index);
        let mut tap = at.map(|at| taps.swap_remove(at).1);
        let placed = place_one(plan, index, made, &held, space, tap.as_mut());
        let interfaces = interfaces_of(made, device.key).unwrap_or_default();
        let wanted = Wanted::of(plan, index, &interfaces, &held);
        let places = describe::places(plan, index, &wanted, &interfaces);
        let mut by_class = by_class::is_asked(made, device.key).then_some(Ok(()));
        let (lower, members) = match placed {
            Ok((members, selects)) => {
                by_class = by_class.map(|_| selects);
                (Ok(Arc::clone(&members.lower)), Some(members))
            }
            Err(why) => {
                by_class = by_class.map(|_| Err(why.clone()));
                (Err(why), None)
            }
        };
        if let (Some(place), true) = (&mut tap, lower.is_err())
            && let Some(filters) = place.filters()
        {
            let sources = sources_of(made, device.key);
            if let Err(error) = attach(sources, |source| source.set_filters(&filters)) {
                place.stay_in_user(&error.to_string());
            }
        }
        tap.iter().for_each(TapPlace::connect);
        let at_driver = interfaces.iter().any(|interface| interface.at_driver);
        let names = interfaces.into_iter().map(|interface| interface.name).collect();
        let device = device.key;
        placements.push(Placement {
            device,
            names,
            lower,
            tap,
            places,
            by_class,
            at_driver,
            members,
        });
    }
    placements
}

/// Begins what runs beside the packet loop, once the process has given up its rights. Returns the counts of chains.
pub(crate) fn begin(placements: &[Placement]) -> Vec<Below> {
    placements.iter().flat_map(|placement| &placement.lower).for_each(|lower| lower.begin());
    let places = placements.iter().filter_map(|placement| placement.tap.as_ref());
    let taps = places.flat_map(|place| &place.parts).filter_map(|part| part.tap.as_ref());
    taps.for_each(|tap| tap.begin());
    placements.iter().filter_map(Placement::below).collect()
}

/// The interfaces of a device.
fn interfaces_of(made: &[(u64, Made)], device: u64) -> Result<Vec<Interface>, String> {
    let interfaces = made.iter().find_map(|(known, made)| match made {
        Made::Source(source) | Made::Shares(source, _) if *known == device => {
            Some(source.interfaces())
        }
        _ => None,
    });
    Ok(interfaces.ok_or("the device is not a source")?.to_vec())
}

fn sources_of(made: &mut [(u64, Made)], device: u64) -> impl Iterator<Item = &mut Made> {
    made.iter_mut().filter(move |(known, _)| *known == device).map(|(_, made)| made)
}

fn place_one(
    plan: &Plan,
    device: usize,
    made: &mut [(u64, Made)],
    held: &Held,
    space: &dyn Space,
    tap: Option<&mut TapPlace>,
) -> Result<(Members, Result<(), String>), String> {
    let key = plan.nodes[device].key;
    let interfaces = interfaces_of(made, key)?;
    let mut wanted = Wanted::of(plan, device, &interfaces, held);
    if let Some(why) = wanted.all {
        return Err(why);
    }
    for one in wanted.consumers.iter_mut().filter(|one| one.has_filters) {
        let set = node_of(made, plan.nodes[one.at].key).and_then(|node| node.filters());
        one.netmask = netmask_of(set.ok_or("the filter cannot be edited")?);
    }
    let mut sets = wanted.consumers.iter().filter(|one| one.has_filters);
    // A filter after several devices reads all frames with the netmask of one.
    let netmask = sets.next().or(wanted.consumers.first()).map_or(0, |one| one.netmask);
    if !wanted.consumers.iter().all(|one| one.fits(netmask)) {
        return Err(NETMASKS.to_owned());
    }
    let parts = interfaces.iter().map(|interface| {
        let link = interface.link;
        let reading = Options { link, netmask: Some(netmask), live: true, ..Options::default() };
        space.filter(interface, reading)
    });
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let lower = match &parts[..] {
        [one] => Arc::clone(one),
        _ => Arc::new(Several::new(&interfaces, &parts)),
    };
    for (part, filter) in tap.into_iter().flat_map(|place| &mut place.parts).zip(&parts) {
        if let Some(rules) = part.in_space()
            && let Err(why) = filter.run_after(rules)
        {
            part.below = Err(why);
        }
    }
    let union = Union::new(Arc::clone(&lower) as Arc<dyn Superset>);
    // Before the texts, which then have their classes.
    let selects = by_class::set(&wanted, &*lower, &interfaces);
    let consumers = Vec::new();
    let mut members = Members { union, lower, interfaces, netmask, consumers, chain: None };
    let sets = |key| node_of(made, key).and_then(|node| node.filters().cloned());
    for one in &wanted.consumers {
        let key = plan.nodes[one.at].key;
        let consumer = members.consumer(key, one, sets(key).as_ref());
        members.consumers.push(consumer);
    }
    members.chain_up(plan, &wanted, sets);
    let filters: Vec<_> = parts.into_iter().map(|part| part as Arc<dyn SocketFilter>).collect();
    if let Err(error) = attach(sources_of(made, key), |source| source.set_filters(&filters)) {
        // Some rings of several workers or interfaces may have it.
        members.union.set_open(Some("a ring of the interface does not take it".to_owned()));
        members.consumers.iter().for_each(Consumer::take_back);
        members.chain.iter().flatten().for_each(Chained::end);
        return Err(error.to_string());
    }
    Ok((members, selects))
}

/// Attaches a filter to the sockets of a source, one for each worker.
fn attach<'m>(
    made: impl Iterator<Item = &'m mut Made>,
    set: impl Fn(&mut dyn Source) -> std::io::Result<()>,
) -> std::io::Result<()> {
    for made in made {
        let shares = match made {
            Made::Source(source) => std::slice::from_mut(source),
            Made::Shares(_, shares) => shares,
            Made::Node(_) => &mut [],
        };
        for source in shares {
            set(&mut **source)?;
        }
    }
    Ok(())
}

impl Members {
    /// Adds a consumer: the lower filter passes what it needs when this returns.
    fn consumer(&self, key: u64, wanted: &WantedBy, set: Option<&FilterSet>) -> Consumer {
        let texts = self.union.of_texts();
        texts.widen_to(&wanted.texts);
        let set = set.filter(|_| wanted.has_filters);
        let filters = set.map(|set| self.member(set, wanted.rows_covered));
        if filters.is_none() {
            texts.narrow_to(&wanted.texts);
        }
        Consumer { key, filters, texts, wanted: wanted.texts.clone() }
    }

    /// Gives a set of filters a place of its own before the lower filter.
    fn member(&self, set: &FilterSet, rows_covered: bool) -> (Member, Given) {
        let has_other_netmask = netmask_of(set) != self.netmask;
        let member = self.union.of_filters(rows_covered, has_other_netmask);
        let superset: Arc<dyn Superset> = Arc::new(member.clone());
        set.add_superset(Arc::clone(&superset));
        (member, (set.clone(), superset))
    }

    /// Keys of the filters of the chain in an edited plan. If they are a chain no more, the first one decides alone
    /// from now on.
    fn chain_after(&self, plan: &Plan, wanted: &Wanted, stays: &HashMap<u64, u64>) -> Vec<u64> {
        let Some(Ok(chained)) = &self.chain else { return Vec::new() };
        let new = |old: &u64| {
            let pair = stays.iter().find(|(_, known)| *known == old);
            pair.map_or(GONE, |(new, _)| *new)
        };
        let keys: Vec<u64> = chained.keys.iter().map(new).collect();
        let found = chain::find(plan, wanted, &self.interfaces);
        if !found.iter().map(|&at| plan.nodes[at].key).eq(keys.iter().copied()) {
            chained.chain.stand_apart(Some("an edit changes what follows it"));
        }
        keys
    }

    /// Lets a chain of filters run below, in place of its first filter; or the first filter alone, in place of a chain
    /// that is none any more. Returns a new chain.
    fn chain_up(
        &mut self,
        plan: &Plan,
        wanted: &Wanted,
        sets: impl Fn(u64) -> Option<FilterSet>,
    ) -> Option<Chained> {
        let found = chain::find(plan, wanted, &self.interfaces);
        let keys: Vec<u64> = found.iter().map(|&at| plan.nodes[at].key).collect();
        if let Some(Ok(chained)) = self.chain.take() {
            if chained.keys == keys {
                chained.chain.stand_apart(None);
                self.chain = Some(Ok(chained));
                return None;
            }
            let first = chained.keys[0];
            let at = self.consumers.iter().position(|one| one.key == first);
            if let (Some(at), Some(set)) = (at, sets(first)) {
                self.consumers[at].filters = Some(self.member(&set, false));
            }
            chained.end();
        }
        let first = *keys.first()?;
        let made = Chained::new(keys, sets, self.netmask, &self.union, &self.lower);
        if made.is_ok() {
            let first = self.consumers.iter_mut().find(|one| one.key == first);
            first.into_iter().for_each(|one| {
                one.take_back();
                one.filters.take().iter().for_each(|(member, _)| member.leave());
            });
        }
        self.chain = Some(made);
        self.chain.iter().flatten().next().cloned()
    }
}

impl Consumer {
    fn leave(&self) {
        self.texts.leave();
        self.filters.iter().for_each(|(member, _)| member.leave());
    }

    /// Takes the lower space away from the filters.
    fn take_back(&self) {
        self.filters.iter().for_each(|(_, (set, superset))| set.remove_superset(superset));
    }
}

/// An edit of a graph, as far as it concerns a placement.
struct Moved {
    consumers: Vec<Consumer>,
    /// Consumers that the edit adds, and those that it removes.
    new: Vec<Consumer>,
    gone: Vec<Consumer>,
    /// Keys of the filters of the chain in the new plan; [`GONE`] for those that it lacks.
    chain: Vec<u64>,
    /// Reason why every frame is needed, after the edit and before it.
    all: Option<String>,
    before: Option<String>,
}

/// An edit of a graph; the lower filters already pass its frames. For each placement, the key of its device in the new
/// plan, and what changes there.
#[must_use]
pub(crate) struct Widened(Vec<Edited>);

/// An edit of a graph, as far as it concerns a device.
struct Edited {
    /// Key of the device in the new plan.
    device: Option<u64>,
    /// Key of the node of the tap in the new plan, if it is used as before.
    tap: Option<u64>,
    /// Places of the filters after it then.
    places: Vec<NodePlace>,
    moved: Option<Moved>,
}

/// Lets the lower filters pass what an edited graph needs, before the edit takes effect. `stays` has the old keys of
/// the nodes that stay; `held` knows all nodes of the plan that edit filters.
pub(crate) fn widen(
    plan: &Plan,
    placements: &[Placement],
    stays: &HashMap<u64, u64>,
    made: &[(u64, Made)],
    held: &Held,
) -> Widened {
    let widen = |placement: &Placement| {
        let old = Some(&placement.device);
        let device = plan.nodes.iter().position(|node| stays.get(&node.key) == old);
        let tap = placement.tap.as_ref().filter(|place| {
            let fits = device.is_some_and(|device| place.fits(plan, device, stays));
            if !fits {
                place.set_on(false);
            }
            fits
        });
        let tap = tap.and_then(|place| {
            plan.nodes.iter().map(|node| node.key).find(|key| stays.get(key) == Some(&place.node))
        });
        let members = placement.members.as_ref();
        let moved = members.map(|members| members.widen(plan, device, stays, made, held));
        let interfaces = members.map(|members| &members.interfaces[..]).unwrap_or_default();
        let wanted = device.map(|at| (at, Wanted::of(plan, at, interfaces, held)));
        let places = wanted.map(|(at, wanted)| describe::places(plan, at, &wanted, interfaces));
        let places = places.unwrap_or_default();
        Edited { device: device.map(|at| plan.nodes[at].key), tap, places, moved }
    };
    Widened(placements.iter().map(widen).collect())
}

impl Members {
    fn widen(
        &self,
        plan: &Plan,
        device: Option<usize>,
        stays: &HashMap<u64, u64>,
        made: &[(u64, Made)],
        held: &Held,
    ) -> Moved {
        let wanted = device.map_or_else(Wanted::default, |device| {
            Wanted::of(plan, device, &self.interfaces, held)
        });
        let before = self.union.reason();
        let chain = self.chain_after(plan, &wanted, stays);
        // An edit that is refused leaves the classes; each node decides about the frames that it gets.
        let _as_before = by_class::set(&wanted, &*self.lower, &self.interfaces);
        let mut moved =
            Moved { consumers: vec![], new: vec![], gone: vec![], chain, all: wanted.all, before };
        for mut one in wanted.consumers {
            let key = plan.nodes[one.at].key;
            let old = stays.get(&key);
            let known = self.consumers.iter().find(|consumer| Some(&consumer.key) == old);
            let set = node_of(made, key).and_then(|node| node.filters());
            if let Some(set) = set.filter(|_| one.has_filters) {
                one.netmask = netmask_of(set);
            }
            if !one.fits(self.netmask) {
                moved.all.get_or_insert_with(|| NETMASKS.to_owned());
            }
            let consumer = match known {
                Some(known) => {
                    known.texts.widen_to(&one.texts);
                    Consumer { key, wanted: one.texts, ..known.clone() }
                }
                None if one.has_filters && set.is_none() => {
                    moved.all.get_or_insert_with(|| "the filter cannot be edited".to_owned());
                    continue;
                }
                None => {
                    let consumer = self.consumer(key, &one, set);
                    moved.new.push(consumer.clone());
                    consumer
                }
            };
            moved.consumers.push(consumer);
        }
        if moved.all.is_some() {
            self.union.set_open(moved.all.clone());
        }
        let stays = |old: &Consumer| {
            moved.consumers.iter().any(|one| stays.get(&one.key) == Some(&old.key))
        };
        moved.gone = self.consumers.iter().filter(|old| !stays(old)).cloned().collect();
        moved
    }
}

impl Widened {
    /// Rejects what the edited graph needs no longer, after the edit has taken effect; `running` has the filters of all
    /// its nodes. Returns the chains that the edit has made.
    pub fn narrow(
        self,
        placements: &mut Vec<Placement>,
        plan: &Plan,
        held: &Held,
        running: &HashMap<u64, FilterSet>,
    ) -> Vec<Below> {
        let mut new = Vec::new();
        for (placement, edited) in placements.iter_mut().zip(self.0) {
            let Edited { device, tap, places, moved } = edited;
            placement.device = device.unwrap_or(GONE);
            placement.places = places;
            match tap {
                Some(key) => placement.tap.iter_mut().for_each(|place| place.node = key),
                None => placement.tap = None,
            }
            let (Some(members), Some(moved)) = (&mut placement.members, moved) else { continue };
            moved.gone.iter().for_each(Consumer::leave);
            moved.consumers.iter().for_each(|one| one.texts.narrow_to(&one.wanted));
            members.consumers = moved.consumers;
            if let Some(Ok(chained)) = &mut members.chain {
                chained.keys = moved.chain;
            }
            if let Some(device) = device {
                let at = plan.nodes.iter().position(|node| node.key == device);
                let wanted = at.map(|at| Wanted::of(plan, at, &members.interfaces, held));
                let wanted = wanted.unwrap_or_default();
                let chained = members.chain_up(plan, &wanted, |key| running.get(&key).cloned());
                new.extend(chained.map(|chained| chained.below(device)));
            }
            members.union.set_open(moved.all);
        }
        placements.retain(|placement| placement.device != GONE);
        new
    }

    /// Rejects again what only a refused edit needs.
    pub fn cancel(self, placements: &[Placement]) {
        for (placement, Edited { moved, .. }) in placements.iter().zip(self.0) {
            if let Some(place) = &placement.tap {
                place.set_on(true);
            }
            let (Some(members), Some(moved)) = (&placement.members, moved) else { continue };
            moved.new.iter().for_each(|one| {
                one.take_back();
                one.leave();
            });
            members.chain.iter().flatten().for_each(|one| one.chain.stand_apart(None));
            members.consumers.iter().for_each(|one| one.texts.narrow_to(&one.wanted));
            members.union.set_open(moved.before);
        }
    }
}

/// Key of a device that an edit has removed.
const GONE: u64 = 0;
