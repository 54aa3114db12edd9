//! The policy of a service: users that are served, with their frames and limits.
//!
//! ```toml
//! [[rule]]                       # the first rule that names a user decides
//! users = ["alice", 1001]        # names or numbers
//! groups = ["netops"]            # of the user's process, or with the user as a member
//! names = ["probe-1"]            # clients of `fyke relay`, by the names in their certificates
//! interfaces = ["eth0"]          # all, if not given
//! filter = "net 10.0.0.0/8"      # frames that no text of these readers reaches beyond
//! snaplen = 96                   # most bytes of a frame
//! share = "user"                 # readers that share memory: "user", "group", "process" or "everyone" of this rule
//! prefer = "fast"                # "slow": frames without room are refused, and slow readers keep theirs
//! texts = 64                     # most texts of a reader
//! text_bytes = 1048576           # most bytes of a text
//! readers = 64                   # most readers of one user
//! memory_mib = 64                # for the frames of readers that share memory
//! user_mib = 256                 # for all readers of one user
//! compile_ms = 10000             # most time in a minute that texts and graphs of one user take to compile
//! opens = []                     # nodes of graphs may open: "file", "device", "network", "program"
//!
//! [[capture]]                    # what the service captures, if its command line names no interface
//! interface = "eth0"
//! name = "outside"               # for `serve:outside`; the name of the interface, if not given
//! promiscuous = true
//! buffer_kib = 32768             # size of the capture ring
//! ```
//!
//! Root and the user of the service need no rule; one that names them applies to them, too. Everybody else is
//! refused without a rule. Without a policy there are no rules. Names are looked up in `/etc/passwd` and `/etc/group`
//! when the policy is read.

mod captures;

pub use captures::{Capture, MAX_CAPTURES, captures};

use crate::group::{Group, PACKET_BYTES, Sharing};
use crate::message::Limits;
use fyke_graph::node::Opens;
use serde::Deserialize;
use serde::de::{self, Deserializer, Unexpected, Visitor};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of a policy.
pub const MAX_BYTES: u64 = 1 << 20;
/// Most readers in all.
pub const MAX_READERS: usize = 256;
/// Most readers of one user, unless a rule has another limit; root may have as many as there are in all.
pub const MAX_OF_USER: usize = 64;
/// Memory of all readers of a user, unless a rule has another limit; root may have four times as much.
pub const USER_BYTES: usize = 256 << 20;
/// Time in a minute in which texts and graphs of a user are compiled, unless a rule has another limit.
pub const COMPILE: Duration = Duration::from_secs(10);
/// Most rules.
pub const MAX_RULES: usize = 1_000;

/// A policy that cannot be used; the old one stays in force.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct PolicyError {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// The problem.
    pub problem: String,
}

/// A user or group in a file: a name or a number.
#[derive(Debug, Clone)]
enum Id {
    Number(u32),
    Name(String),
}

/// Largest number of a user or group; the one above it means none in calls of the system.
const MAX_ID: u32 = u32::MAX - 1;

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(given: D) -> Result<Id, D::Error> {
        given.deserialize_any(IdVisitor)
    }
}

struct IdVisitor;

impl Visitor<'_> for IdVisitor {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name of a user or group in quotes, or a number from 0 to {MAX_ID}")
    }

    fn visit_i64<E: de::Error>(self, given: i64) -> Result<Id, E> {
        let number = u32::try_from(given).ok().filter(|number| *number <= MAX_ID);
        number.map(Id::Number).ok_or_else(|| E::invalid_value(Unexpected::Signed(given), &self))
    }

    fn visit_str<E: de::Error>(self, given: &str) -> Result<Id, E> {
        Ok(Id::Name(given.to_owned()))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<toml::Spanned<Entry>>,
    #[serde(default)]
    capture: Vec<toml::Spanned<captures::Entry>>,
}

/// Checks a filter text for the frames of these interfaces; of all interfaces of the service, if there is no list.
pub type Check<'c> = dyn Fn(&str, Option<&[String]>) -> Result<(), String> + 'c;

/// A rule as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    users: Vec<toml::Spanned<Id>>,
    #[serde(default)]
    groups: Vec<toml::Spanned<Id>>,
    #[serde(default)]
    names: BTreeSet<String>,
    interfaces: Option<Vec<toml::Spanned<String>>>,
    filter: Option<toml::Spanned<String>>,
    snaplen: Option<toml::Spanned<i64>>,
    share: Option<toml::Spanned<String>>,
    prefer: Option<toml::Spanned<String>>,
    texts: Option<toml::Spanned<i64>>,
    text_bytes: Option<toml::Spanned<i64>>,
    readers: Option<toml::Spanned<i64>>,
    memory_mib: Option<toml::Spanned<i64>>,
    user_mib: Option<toml::Spanned<i64>>,
    compile_ms: Option<toml::Spanned<i64>>,
    #[serde(default)]
    opens: Vec<toml::Spanned<String>>,
}

/// Rights and limits of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// The readers with which it shares memory, and what these frames are.
    pub group: Group,
    /// Limits of its texts.
    pub limits: Limits,
    /// Most readers of its user.
    pub readers: usize,
    /// Memory for the frames of its group, in bytes.
    pub memory: usize,
    /// Resources that the nodes of its graph may open; nothing is always permitted.
    pub opens: Vec<Opens>,
    /// Memory of all readers of its user, in bytes.
    pub user_memory: usize,
    /// Most time in a minute in which texts and graphs of its user are compiled.
    pub compile: Duration,
}

/// A rule: the users that it names, and their terms.
#[derive(Debug, Clone)]
struct Rule {
    users: BTreeSet<u32>,
    groups: BTreeSet<u32>,
    names: BTreeSet<String>,
    interfaces: Option<Vec<String>>,
    filter: Arc<str>,
    snaplen: u32,
    share: Share,
    prefers_slow: bool,
    limits: Limits,
    readers: usize,
    memory: usize,
    opens: Vec<Opens>,
    user_memory: usize,
    compile: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    User,
    Process,
    Group,
    Everyone,
}

/// The rules, in the order of the file.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    rules: Vec<Rule>,
    captures: Vec<Capture>,
    /// Interfaces that rules name, each with its place in the file.
    named: Vec<(PolicyError, String)>,
}

/// A process that wants to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its user id.
    pub user: u32,
    /// Its group id.
    pub group: u32,
    /// Its number, unique since the system has started; `None` before Linux 6.9.
    pub process: Option<u64>,
}

/// The databases of users and groups, as text.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// `/etc/passwd`.
    pub users: String,
    /// `/etc/group`.
    pub groups: String,
}

impl Names {
    /// Reads the files of this system; a file that cannot be read has no names.
    pub fn of_system() -> Names {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Names { users: read("/etc/passwd"), groups: read("/etc/group") }
    }

    /// The number in the third field of the line of a name.
    fn number(lines: &str, name: &str) -> Option<u32> {
        let line = lines.lines().find(|line| line.split(':').next() == Some(name))?;
        line.split(':').nth(2)?.parse().ok()
    }

    fn user(&self, name: &str) -> Option<u32> {
        Names::number(&self.users, name)
    }

    fn group(&self, name: &str) -> Option<u32> {
        Names::number(&self.groups, name)
    }

    /// The users that are members of a group by its line, beside those that have it as their own group.
    fn members(&self, group: u32) -> impl Iterator<Item = u32> {
        let of = |line: &&str| line.split(':').nth(2).and_then(|id| id.parse().ok()) == Some(group);
        let line = self.groups.lines().find(of).unwrap_or_default();
        let names = line.split(':').nth(3).unwrap_or_default().split(',');
        names.filter_map(|name| self.user(name.trim()))
    }
}

/// Reads a policy file.
struct Reading<'t> {
    file: &'t str,
    text: &'t str,
    names: &'t Names,
}

impl Reading<'_> {
    fn error(&self, at: Range<usize>, problem: impl Into<String>) -> PolicyError {
        let before = self.text.get(..at.start.min(self.text.len())).unwrap_or(self.text);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        PolicyError { file: self.file.to_owned(), line, problem: problem.into() }
    }

    fn parse(&self) -> Result<File, PolicyError> {
        toml::from_str(self.text)
            .map_err(|error| self.error(error.span().unwrap_or(0..0), error.message().to_owned()))
    }

    fn id(
        &self,
        given: &toml::Spanned<Id>,
        what: &str,
        find: impl Fn(&str) -> Option<u32>,
    ) -> Result<u32, PolicyError> {
        match given.get_ref() {
            Id::Number(number) => Ok(*number),
            Id::Name(name) => find(name).ok_or_else(|| {
                let problem = format!(
                    "there is no {what} {name:?} in /etc/{}; give its number if it is elsewhere",
                    if what == "user" { "passwd" } else { "group" }
                );
                self.error(given.span(), problem)
            }),
        }
    }

    fn number(
        &self,
        given: Option<&toml::Spanned<i64>>,
        name: &str,
        range: std::ops::RangeInclusive<u64>,
        default: usize,
    ) -> Result<usize, PolicyError> {
        let Some(given) = given else { return Ok(default) };
        let (start, end) = (range.start(), range.end());
        match u64::try_from(*given.get_ref()).ok().filter(|number| range.contains(number)) {
            Some(number) => Ok(number as usize),
            None => {
                let problem = format!("{name} is {}, expected {start} to {end}", given.get_ref());
                Err(self.error(given.span(), problem))
            }
        }
    }

    /// Kind of resource, by its word.
    fn opens(&self, word: &toml::Spanned<String>) -> Result<Opens, PolicyError> {
        let known = Opens::ALL.into_iter().find(|one| one.word() == word.get_ref());
        known.ok_or_else(|| {
            let all = Opens::ALL.map(Opens::word).join(", ");
            self.error(word.span(), format!("opens has {:?}, expected {all}", word.get_ref()))
        })
    }

    fn share(&self, given: Option<&toml::Spanned<String>>) -> Result<Share, PolicyError> {
        let Some(given) = given else { return Ok(Share::User) };
        match given.get_ref().as_str() {
            "user" => Ok(Share::User),
            "group" => Ok(Share::Group),
            "process" => Ok(Share::Process),
            "everyone" => Ok(Share::Everyone),
            other => {
                let problem =
                    format!("share is {other:?}, expected user, group, process or everyone");
                Err(self.error(given.span(), problem))
            }
        }
    }

    fn prefers_slow(&self, given: Option<&toml::Spanned<String>>) -> Result<bool, PolicyError> {
        let Some(given) = given else { return Ok(false) };
        match given.get_ref().as_str() {
            "fast" => Ok(false),
            "slow" => Ok(true),
            other => {
                let problem = format!("prefer is {other:?}, expected fast or slow");
                Err(self.error(given.span(), problem))
            }
        }
    }

    fn rule(&self, entry: &toml::Spanned<Entry>, check: &Check<'_>) -> Result<Rule, PolicyError> {
        let (at, entry) = (entry.span(), entry.get_ref());
        if entry.users.is_empty() && entry.groups.is_empty() && entry.names.is_empty() {
            return Err(self.error(at, "the rule names no user; give users, groups or names"));
        }
        let users = entry.users.iter().map(|id| self.id(id, "user", |name| self.names.user(name)));
        let mut users: BTreeSet<u32> = users.collect::<Result<_, _>>()?;
        let groups =
            entry.groups.iter().map(|id| self.id(id, "group", |name| self.names.group(name)));
        let groups: BTreeSet<u32> = groups.collect::<Result<_, _>>()?;
        users.extend(groups.iter().flat_map(|&group| self.names.members(group)));
        let interfaces = entry.interfaces.as_ref();
        let interfaces: Option<Vec<String>> =
            interfaces.map(|all| all.iter().map(|name| name.get_ref().clone()).collect());
        if let Some(filter) = &entry.filter {
            check(filter.get_ref(), interfaces.as_deref()).map_err(|problem| {
                self.error(filter.span(), format!("the filter is wrong: {problem}"))
            })?;
        }
        let longest = fyke_capture::DEFAULT_SNAPLEN;
        let lengths = 1..=u64::from(longest);
        let snaplen = self.number(entry.snaplen.as_ref(), "snaplen", lengths, longest as usize)?;
        let share = self.share(entry.share.as_ref())?;
        let defaults = Limits::default();
        let limits = Limits {
            texts: self.number(entry.texts.as_ref(), "texts", 1..=10_000, defaults.texts)?,
            text_bytes: self.number(
                entry.text_bytes.as_ref(),
                "text_bytes",
                1..=4 << 20,
                defaults.text_bytes,
            )?,
        };
        let most = MAX_READERS as u64;
        let mib =
            self.number(entry.memory_mib.as_ref(), "memory_mib", 1..=1024, PACKET_BYTES >> 20)?;
        let user_mib =
            self.number(entry.user_mib.as_ref(), "user_mib", 1..=65_536, USER_BYTES >> 20)?;
        let compile_ms = self.number(
            entry.compile_ms.as_ref(),
            "compile_ms",
            1..=60_000,
            COMPILE.as_millis() as usize,
        )?;
        Ok(Rule {
            users,
            groups,
            names: entry.names.clone(),
            interfaces,
            filter: entry.filter.as_ref().map_or("", |filter| filter.get_ref().trim()).into(),
            snaplen: snaplen as u32,
            share,
            prefers_slow: self.prefers_slow(entry.prefer.as_ref())?,
            limits,
            readers: self.number(entry.readers.as_ref(), "readers", 1..=most, MAX_OF_USER)?,
            memory: mib << 20,
            user_memory: user_mib << 20,
            compile: Duration::from_millis(compile_ms as u64),
            opens: entry.opens.iter().map(|word| self.opens(word)).collect::<Result<_, _>>()?,
        })
    }
}

impl Policy {
    /// Reads a policy. `check` checks a filter text.
    ///
    /// # Errors
    /// The first problem, with its line.
    pub fn read(
        file: &Path,
        text: &str,
        names: &Names,
        check: &Check<'_>,
    ) -> Result<Policy, PolicyError> {
        let file = file.display().to_string();
        let reading = Reading { file: &file, text, names };
        let parsed: File = reading.parse()?;
        if let Some(beyond) = parsed.rule.get(MAX_RULES) {
            let problem = format!("there are more than {MAX_RULES} rules");
            return Err(reading.error(beyond.span(), problem));
        }
        let rules = parsed.rule.iter().map(|entry| reading.rule(entry, check));
        let rules = rules.collect::<Result<_, _>>()?;
        let all = parsed.rule.iter().filter_map(|entry| entry.get_ref().interfaces.as_ref());
        let named = all.flatten().map(|name| {
            let problem = format!(
                "there is no interface {:?} now: the rule has no effect until this service captures one of this name",
                name.get_ref()
            );
            (reading.error(name.span(), problem), name.get_ref().clone())
        });
        let named = named.collect();
        Ok(Policy { rules, captures: reading.captures(&parsed.capture)?, named })
    }

    /// A remark for each interface in a rule that `is_there` does not know. It is no error, because an interface may
    /// appear later.
    pub fn missing(&self, is_there: impl Fn(&str) -> bool) -> Vec<&PolicyError> {
        let missing = self.named.iter().filter(|(_, name)| !is_there(name));
        missing.map(|(remark, _)| remark).collect()
    }

    /// The captures that the service should have; none, if the file has only rules.
    pub fn captures(&self) -> &[Capture] {
        &self.captures
    }

    /// The terms of a process for an interface; `ours` is the user of the service.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub fn terms(&self, peer: Peer, ours: u32, interface: &str) -> Result<Terms, String> {
        let names =
            |rule: &&Rule| rule.users.contains(&peer.user) || rule.groups.contains(&peer.group);
        let is_here = |rule: &&Rule| rule.is_for(interface);
        if let Some(rule) = self.rules.iter().filter(names).find(is_here) {
            return rule.terms(peer);
        }
        if peer.user == 0 || peer.user == ours {
            return Ok(Terms::of_user(peer.user));
        }
        let user = peer.user;
        Err(match self.rules.is_empty() {
            true => format!(
                "this service runs as user {ours} and serves that user and root, not user {user}; \
                 fyke serve --config FILE serves others"
            ),
            false => {
                format!("the policy of this service has no rule for user {user} on {interface}")
            }
        })
    }
}

impl Policy {
    /// The terms of a client of `fyke relay` for an interface, by its name; `None` if no rule has it.
    pub fn terms_of_name(&self, name: &str, interface: &str) -> Option<Terms> {
        let is_named = |rule: &&Rule| rule.names.contains(name) && rule.is_for(interface);
        // Clients share no memory, so the one that shares does not matter.
        let none = Peer { user: u32::MAX, group: u32::MAX, process: Some(0) };
        self.rules.iter().find(is_named)?.terms(none).ok()
    }
}

impl Rule {
    fn is_for(&self, interface: &str) -> bool {
        self.interfaces.as_ref().is_none_or(|all| all.iter().any(|one| one == interface))
    }

    fn terms(&self, peer: Peer) -> Result<Terms, String> {
        let sharing = match self.share {
            Share::User => Sharing::User(peer.user),
            Share::Group => Sharing::Group(peer.group),
            Share::Process => Sharing::Process(peer.process.ok_or(
                "share = \"process\" in the policy of this service needs Linux 6.9 or later",
            )?),
            Share::Everyone => Sharing::Everyone,
        };
        let (filter, snaplen) = (Arc::clone(&self.filter), self.snaplen);
        let group = Group { sharing, filter, snaplen, prefers_slow: self.prefers_slow };
        let (limits, readers, memory) = (self.limits, self.readers, self.memory);
        let (opens, user_memory, compile) = (self.opens.clone(), self.user_memory, self.compile);
        Ok(Terms { group, limits, readers, memory, opens, user_memory, compile })
    }
}

impl Terms {
    /// The terms of a user without a rule: root, and the user of the service.
    pub fn of_user(user: u32) -> Terms {
        let (filter, snaplen) = (Arc::from(""), fyke_capture::DEFAULT_SNAPLEN);
        let sharing = Sharing::User(user);
        let group = Group { sharing, filter, snaplen, prefers_slow: false };
        let readers = if user == 0 { MAX_READERS } else { MAX_OF_USER };
        let (limits, memory) = (Limits::default(), PACKET_BYTES);
        let user_memory = if user == 0 { 4 * USER_BYTES } else { USER_BYTES };
        let (opens, compile) = (Vec::new(), COMPILE);
        Terms { group, limits, readers, memory, opens, user_memory, compile }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names {
            users: "root:x:0:0::/:\nalice:x:1000:1000::/:\nbob:x:1001:100::/:".into(),
            groups: "root:x:0:\nusers:x:100:\nnetops:x:200:alice,ghost".into(),
        }
    }

    fn read(text: &str) -> Result<Policy, PolicyError> {
        let check = |text: &str, _: Option<&[String]>| match text.contains("wrong") {
            true => Err("wrong\n^".to_owned()),
            false => Ok(()),
        };
        Policy::read(Path::new("p.toml"), text, &names(), &check)
    }

    const fn peer(user: u32, group: u32) -> Peer {
        Peer { user, group, process: Some(77) }
    }

    #[test]
    fn the_first_rule_that_names_a_user_on_the_interface_decides() {
        let policy = read(
            "[[rule]]\nusers = [\"bob\"]\ninterfaces = [\"eth1\"]\n\
             [[rule]]\ngroups = [\"netops\", 100]\nfilter = \" net 10.0.0.0/8 \"\nsnaplen = 96\n\
             share = \"everyone\"\ntexts = 3\nreaders = 2\nmemory_mib = 8\n",
        );
        let policy = policy.unwrap();
        let of = |peer| policy.terms(peer, 65534, "eth0");
        let alice = of(peer(1000, 1000)).unwrap();
        assert_eq!(alice, of(peer(1001, 100)).unwrap(), "a member and one of the group");
        assert_eq!((&*alice.group.filter, alice.group.snaplen), ("net 10.0.0.0/8", 96));
        assert_eq!((alice.limits.texts, alice.readers, alice.memory), (3, 2, 8 << 20));
        assert_eq!(
            policy.terms(peer(1001, 100), 65534, "eth1"),
            Ok(Terms {
                group: Group { sharing: Sharing::User(1001), ..Terms::of_user(1001).group },
                ..Terms::of_user(1001)
            })
        );
        assert_eq!(of(peer(0, 0)).unwrap(), Terms::of_user(0));
        assert_eq!(of(peer(65534, 65534)).unwrap(), Terms::of_user(65534));
        assert!(of(peer(4711, 4711)).unwrap_err().contains("no rule for user 4711 on eth0"));
        let none = Policy::default().terms(peer(4711, 0), 7, "eth0").unwrap_err();
        assert!(none.contains("runs as user 7") && none.contains("--config"), "{none}");
    }

    #[test]
    fn an_interface_that_is_not_there_is_a_remark_with_its_line() {
        let text =
            "[[rule]]\nusers = [1]\ninterfaces = [\"eth0\",\n\"etth1\"]\n[[rule]]\nusers = [2]\n";
        let policy = read(text).unwrap();
        let missing = policy.missing(|name| name == "eth0");
        let all: Vec<_> = missing.iter().map(ToString::to_string).collect();
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].starts_with("p.toml:4: there is no interface \"etth1\" now"), "{all:?}");
        assert!(policy.missing(|_| true).is_empty());
    }

    #[test]
    fn the_first_rule_with_a_name_decides_for_a_client_in_the_network() {
        let policy = read(
            "[[rule]]\nnames = [\"probe\"]\ninterfaces = [\"eth1\"]\nsnaplen = 96\n\
             [[rule]]\nusers = [1]\nnames = [\"probe\", \"lab\"]\nfilter = \"udp\"\n",
        );
        let policy = policy.unwrap();
        let of = |name, interface| policy.terms_of_name(name, interface).map(|terms| terms.group);
        assert_eq!(of("probe", "eth1").unwrap().snaplen, 96);
        assert_eq!(&*of("probe", "eth0").unwrap().filter, "udp");
        assert_eq!(&*of("lab", "eth1").unwrap().filter, "udp");
        assert!(of("eve", "eth0").is_none() && of("1", "eth0").is_none());
        assert!(policy.terms(peer(4711, 0), 7, "eth1").is_err(), "a name is no user");
    }

    #[test]
    fn a_wrong_policy_names_the_line_and_the_problem() {
        let two_lines = "# a comment\n\n";
        for (text, line, problem) in [
            ("[[rule]]\n", 1, "the rule names no user"),
            ("[[rule]]\nusers = [\"eve\"]\n", 2, "there is no user \"eve\" in /etc/passwd"),
            ("[[rule]]\nusers = [1]\ngroups = [\"x\"]", 3, "there is no group \"x\" in /etc/group"),
            ("[[rule]]\nusers = [-1]\n", 2, "integer `-1`, expected the name of a user or group"),
            ("[[rule]]\nusers = [1,\n99999999999]\n", 3, "or a number from 0 to 4294967294"),
            ("[[rule]]\nusers = [1]\ngroups = [4294967295]", 3, "or a number from 0 to"),
            ("[[rule]]\nusers = [true]", 2, "boolean `true`, expected the name of a user or group"),
            ("[[rule]]\nusers = [1]\nsnaplen = 99999999999", 3, "expected 1 to 262144"),
            ("[[rule]]\nusers = [1]\ntexts = -1", 3, "texts is -1, expected 1 to 10000"),
            ("[[rule]]\nusers = [1]\nfilter = \"wrong\"", 3, "the filter is wrong: wrong"),
            ("[[rule]]\nusers = [1]\nsnaplen = 0", 3, "snaplen is 0, expected 1 to 262144"),
            (
                "[[rule]]\nusers = [1]\nshare = \"all\"",
                3,
                "expected user, group, process or everyone",
            ),
            (
                "[[rule]]\nusers = [1]\nprefer = \"all\"",
                3,
                "prefer is \"all\", expected fast or slow",
            ),
            ("[[rule]]\nusers = [1]\nreaders = 1000", 3, "readers is 1000, expected 1 to 256"),
            ("[[rule]]\nusers = [1]\nmemory_mib = 0", 3, "memory_mib is 0, expected 1 to 1024"),
            ("[[rule]]\nusers = [1]\nfilters = \"udp\"", 3, "unknown field `filters`"),
            ("rules = 1", 1, "unknown field `rules`"),
            ("[[rule]\n", 1, ""),
        ] {
            let error = read(&format!("{two_lines}{text}")).unwrap_err();
            assert_eq!((error.file.as_str(), error.line), ("p.toml", line + 2), "{text}: {error}");
            assert!(error.problem.contains(problem), "{text}: {error}");
        }
        let many = "[[rule]]\nusers = [1]\n".repeat(MAX_RULES + 1);
        assert!(read(&many).unwrap_err().problem.contains("more than 1000 rules"));
        assert!(read("").is_ok());
    }
}
