//! The users of warrants and where they are now.
//!
//! Only users that are named in a warrant are kept. A place belongs to one session at a time: a message that gives it
//! to another user takes it from the earlier one, so that a lost Stop does not let the frames of a stranger be
//! captured. A session that RADIUS has ended does not come back for [`ENDED_NS`], so that a Start that is repeated or
//! late changes nothing. Memory: [`PLACES`] places of a user, [`ENDED`] ended sessions. Cost: a message O(places of all
//! users), a frame two hash look-ups, and O(prefixes) for IPv6.

use crate::facts::{Fact, Name, Place};
use crate::warrant::{Subject, Warrant};
use fyke_frame::Frame;
use fyke_frame::walk::{Protocol, view::PppoeView, walk};
use std::collections::{HashMap, VecDeque};

/// Most places of a user. Further ones are refused.
pub(crate) const PLACES: usize = 64;
const ENDED: usize = 4_096;
const ENDED_NS: u64 = 600_000_000_000;

/// A place that a user has, or an address that a warrant names.
#[derive(Debug, Clone)]
struct Binding {
    user: usize,
    place: Place,
    /// The session; `None` for an address that a warrant names.
    session: Option<Vec<u8>>,
    deadline_ns: u64,
}

/// A change, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) user: usize,
    pub(crate) place: Place,
    /// True if the user has the place from now on.
    pub(crate) begins: bool,
    pub(crate) why: &'static str,
}

/// Users, their warrants and their places.
#[derive(Debug, Default)]
pub(crate) struct Users {
    /// The warrants of each user, by their numbers.
    warrants: Vec<Vec<usize>>,
    names: HashMap<Name, usize>,
    bindings: Vec<Binding>,
    /// Users by their places, except prefixes.
    places: HashMap<Place, Vec<usize>>,
    prefixes: Vec<(Place, usize)>,
    ended: VecDeque<(Vec<u8>, u64)>,
    /// Announced places that were refused.
    pub(crate) refused: u64,
    /// Messages about sessions that had ended.
    pub(crate) late: u64,
}

impl Users {
    pub(crate) fn new(warrants: &[Warrant]) -> Users {
        let mut users = Users::default();
        let mut known: HashMap<&Subject, usize> = HashMap::new();
        for (number, warrant) in warrants.iter().enumerate() {
            let user = *known.entry(&warrant.subject).or_insert(users.warrants.len());
            if user == users.warrants.len() {
                users.warrants.push(Vec::new());
                match &warrant.subject {
                    Subject::Named(name) => {
                        users.names.insert(name.clone(), user);
                    }
                    Subject::Fixed(place) => users.bindings.push(Binding {
                        user,
                        place: *place,
                        session: None,
                        deadline_ns: u64::MAX,
                    }),
                }
            }
            users.warrants[user].push(number);
        }
        users.index();
        users
    }

    /// The warrants of a user.
    pub(crate) fn warrants(&self, user: usize) -> &[usize] {
        &self.warrants[user]
    }

    /// Users with their places.
    pub(crate) fn bindings(&self) -> impl Iterator<Item = (usize, Place)> + '_ {
        self.bindings.iter().map(|binding| (binding.user, binding.place))
    }

    /// True if a warrant names this user of RADIUS, PAP or CHAP.
    pub(crate) fn is_named(&self, user: &[u8]) -> bool {
        self.names.contains_key(&Name::User(user.to_vec()))
    }

    fn index(&mut self) {
        (self.places, self.prefixes) = (HashMap::new(), Vec::new());
        for binding in &self.bindings {
            match binding.place {
                Place::Prefix(..) => self.prefixes.push((binding.place, binding.user)),
                place => self.places.entry(place).or_default().push(binding.user),
            }
        }
    }

    /// Removes the bindings for which `is_over` holds.
    fn remove(
        &mut self,
        why: &'static str,
        changes: &mut Vec<Change>,
        is_over: impl Fn(&Binding) -> bool,
    ) {
        self.bindings.retain(|binding| {
            let over = binding.session.is_some() && is_over(binding);
            if over {
                let Binding { user, place, .. } = *binding;
                changes.push(Change { user, place, begins: false, why });
            }
            !over
        });
    }

    /// Takes what a message tells.
    pub(crate) fn apply(&mut self, fact: Fact, now_ns: u64, changes: &mut Vec<Change>) {
        match fact {
            Fact::Assigned { who, session, places, lifetime_ns, why } => {
                if self.ended.iter().any(|(ended, until)| *ended == session && now_ns < *until) {
                    self.late += 1;
                    return;
                }
                let users: Vec<usize> =
                    who.iter().filter_map(|name| self.names.get(name).copied()).collect();
                let deadline_ns = lifetime_ns.map_or(u64::MAX, |time| now_ns.saturating_add(time));
                self.assign(&users, session, &places, (deadline_ns, why), changes);
            }
            Fact::Ended { session, why, forever } => {
                let own = |binding: &Binding| binding.session.as_ref() == Some(&session);
                let before = changes.len();
                self.remove(why, changes, own);
                if forever && changes.len() > before {
                    if self.ended.len() >= ENDED {
                        self.ended.pop_front();
                    }
                    self.ended.push_back((session, now_ns.saturating_add(ENDED_NS)));
                }
            }
            Fact::AllEnded { prefix, why } => self.remove(why, changes, |binding| {
                binding.session.as_ref().is_some_and(|session| session.starts_with(&prefix))
            }),
        }
        if !changes.is_empty() {
            self.index();
        }
    }

    fn assign(
        &mut self,
        users: &[usize],
        session: Vec<u8>,
        places: &[Place],
        (deadline_ns, why): (u64, &'static str),
        changes: &mut Vec<Change>,
    ) {
        let is_own = |binding: &Binding| binding.session.as_ref() == Some(&session);
        self.remove("session of another user", changes, |binding| {
            is_own(binding) && !users.contains(&binding.user)
        });
        self.remove("given to another user", changes, |binding| {
            places.contains(&binding.place) && !users.contains(&binding.user)
        });
        let replaces = !places.is_empty();
        self.remove("replaced", changes, |binding| {
            replaces && is_own(binding) && !places.contains(&binding.place)
        });
        for binding in &mut self.bindings {
            let moves = users.contains(&binding.user)
                && binding.session.is_some()
                && (binding.session.as_ref() == Some(&session) || places.contains(&binding.place));
            if moves {
                (binding.session, binding.deadline_ns) = (Some(session.clone()), deadline_ns);
            }
        }
        for (user, place) in users.iter().flat_map(|user| places.iter().map(move |p| (*user, *p))) {
            let own = || self.bindings.iter().filter(move |binding| binding.user == user);
            if own().any(|binding| binding.place == place) {
                continue;
            }
            if place.is_refused() || own().count() >= PLACES {
                self.refused += 1;
                continue;
            }
            let session = Some(session.clone());
            self.bindings.push(Binding { user, place, session, deadline_ns });
            changes.push(Change { user, place, begins: true, why });
        }
    }

    /// The next time at which a place is lost without a message.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.bindings.iter().map(|binding| binding.deadline_ns).min().unwrap_or(u64::MAX)
    }

    /// Removes places after their time.
    pub(crate) fn expire(&mut self, now_ns: u64, changes: &mut Vec<Change>) {
        self.remove("no message in time", changes, |binding| binding.deadline_ns <= now_ns);
        if !changes.is_empty() {
            self.index();
        }
    }

    /// Appends the users that a frame belongs to: the ends of its outermost packet, or its session.
    pub(crate) fn of(&self, frame: &Frame<'_>, users: &mut Vec<usize>) {
        if self.bindings.is_empty() {
            return;
        }
        let layers = walk(frame);
        let scope = layers.all();
        let mut add = |found: &[usize]| {
            let new: Vec<usize> =
                found.iter().copied().filter(|user| !users.contains(user)).collect();
            users.extend(new);
        };
        if let Some(layer) = scope.find(Protocol::Pppoe) {
            let pppoe = PppoeView::new(layers.data(), layer).filter(|view| view.code() == 0);
            if let (Some(pppoe), Some(ethernet)) = (pppoe, scope.ethernet()) {
                for mac in [ethernet.source().0, ethernet.destination().0] {
                    let place = Place::Session(mac, pppoe.session());
                    self.places.get(&place).into_iter().for_each(|found| add(found));
                }
            }
            return;
        }
        let Some(ip) = layers.outermost_ip() else { return };
        for address in [ip.source(), ip.destination()] {
            self.places.get(&Place::Host(address)).into_iter().for_each(|found| add(found));
            if address.is_ipv6() {
                let inside = self.prefixes.iter().filter(|(prefix, _)| prefix.contains(address));
                inside.for_each(|(_, user)| add(&[*user]));
            }
        }
    }
}

#[cfg(test)]
mod tests;
