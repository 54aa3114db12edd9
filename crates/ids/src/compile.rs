//! The translator: a rule as it is written becomes a [`Rule`], or is refused with a reason.
//!
//! Nothing is translated into something weaker or different. An option that is not judged exactly refuses the whole
//! rule; options that say nothing about packets (`reference`, `target`) are read and dropped. `docs/ids.md` lists all
//! options.
//!
//! | module | options |
//! |---|---|
//! | `content` | contents with their modifiers, `pcre`, `isdataat`, `bsize`, `urilen` |
//! | `bytes` | `byte_test`, `byte_jump`, `byte_extract`, `byte_math`, `base64_decode` |
//! | `packet` | tests of headers |
//! | `state` | `flow`, `app-layer-protocol`, `threshold`, `detection_filter` |
//! | `names` | `flowbits`, `xbits`, `hostbits`, `flowint` |
//! | `information` | `msg`, `sid`, `classtype`, `metadata` |
//! | `number` | numbers and ranges |

mod bytes;
mod classes;
mod content;
mod information;
mod names;
mod number;
mod packet;
mod state;

use crate::buffer::{Application, Buffer};
use crate::endpoints::{Addresses, Ports, Variables};
use crate::error::Refused;
use crate::read::{Direction, RawOption, RawRule};
pub use crate::rule::Dialect;
use crate::rule::{Action, FlowTest, HeaderTest, List, Presence, Protocol, Rule, Scope, Test};
use crate::transform::Transform;

/// Most tests of a rule.
const MAX_TESTS: usize = 512;

impl Dialect {
    /// Finds the language of a rule by the words that only one has; none if every language reads it.
    pub fn of(rule: &RawRule) -> Option<Dialect> {
        let mut seen_content = false;
        for option in &rule.options {
            let name = &*option.name;
            if name == "content" {
                let quoted_end = option.value.iter().rposition(|byte| *byte == b'"').unwrap_or(0);
                if option.value[quoted_end..].contains(&b',') {
                    return Some(Dialect::Snort3);
                }
                seen_content = true;
            }
            if name.contains('.') || name == "startswith" || name == "endswith" {
                return Some(Dialect::Suricata);
            }
            if !seen_content && option.value.is_empty() && Buffer::of_modifier(name).is_some() {
                return Some(Dialect::Snort3);
            }
            let starts =
                |text: &str| memchr::memmem::find(&option.value, text.as_bytes()).is_some();
            if name == "metadata" && ["ruleset ", "policy ", "service "].into_iter().any(starts) {
                return Some(Dialect::Snort2);
            }
        }
        let application = matches!(
            &*rule.header.protocol,
            "http" | "tls" | "dns" | "smb" | "ssh" | "smtp" | "ftp"
        );
        application.then_some(Dialect::Suricata)
    }
}

/// Translates a rule.
///
/// # Errors
/// If a part of it is wrong, or is not judged exactly.
pub fn translate(
    raw: &RawRule,
    text: &str,
    dialect: Dialect,
    variables: &Variables,
) -> Result<Rule, Refused> {
    let refuse = |reason: String| Refused { line: raw.line, sid: raw.sid(), reason };
    let mut builder = Builder::new(raw, text, dialect, variables).map_err(refuse)?;
    for option in &raw.options {
        builder.option(option).map_err(|reason| refuse(format!("{}: {reason}", option.name)))?;
    }
    builder.finish().map_err(refuse)
}

/// A rule that is being translated.
struct Builder {
    dialect: Dialect,
    rule: Rule,
    /// Names of the variables of byte options.
    names: Vec<String>,
    /// The buffer of the following contents, as an index of lists; none is the payload.
    sticky: Option<usize>,
    /// The last content: its list, its number there, and the modifiers that it has.
    last: Option<content::Draft>,
    /// List of the last test.
    last_list: Option<usize>,
    /// A `base64_decode` with its `base64_data`: list and test.
    decoded: Option<(usize, usize)>,
    has_sid: bool,
    only_packets: Option<&'static str>,
    only_streams: bool,
    /// It has `alert`.
    alerts: bool,
    seen: Vec<String>,
}

/// Options that may be there once.
const ONCE: &[&str] =
    &["msg", "sid", "rev", "gid", "classtype", "priority", "flow", "dsize", "threshold"];

impl Builder {
    fn new(
        raw: &RawRule,
        text: &str,
        dialect: Dialect,
        variables: &Variables,
    ) -> Result<Builder, String> {
        let rule = Rule {
            gid: 1,
            sid: 0,
            rev: 0,
            message: String::new(),
            category: String::new(),
            priority: 3,
            metadata: Vec::new(),
            action: action(&raw.header.action)?,
            header: header(raw, variables)?,
            flow: FlowTest::default(),
            counts: Vec::new(),
            packet: Vec::new(),
            lists: Vec::new(),
            scope: Scope { packets: true, streams: false, alone: true },
            bits: Vec::new(),
            marks: Vec::new(),
            numbers: Vec::new(),
            sums: Vec::new(),
            silent: false,
            threshold: None,
            tag: None,
            variables: 0,
            dialect,
            text: text.into(),
        };
        let (only_packets, only_streams) = match &*raw.header.protocol {
            "tcp-pkt" => (Some("tcp-pkt"), false),
            "tcp-stream" => (None, true),
            _ => (None, false),
        };
        Ok(Builder {
            dialect,
            rule,
            names: Vec::new(),
            sticky: None,
            last: None,
            last_list: None,
            decoded: None,
            has_sid: false,
            only_packets,
            only_streams,
            alerts: false,
            seen: Vec::new(),
        })
    }

    /// Reads one option.
    fn option(&mut self, option: &RawOption) -> Result<(), String> {
        let name = &*option.name;
        if ONCE.contains(&name) {
            if self.seen.iter().any(|seen| seen == name) {
                return Err("given twice".to_owned());
            }
            self.seen.push(name.to_owned());
        }
        let value = option.text();
        if let Some(buffer) = Buffer::of_sticky(name) {
            return match buffer.is_number() {
                true => self.number(buffer, value?),
                false => self.enter(buffer, value?),
            };
        }
        if let Some(buffer) = Buffer::of_modifier(name) {
            return match self.dialect {
                Dialect::Snort3 => self.enter(buffer, value?),
                Dialect::Suricata | Dialect::Snort2 => self.assign(buffer, value?),
            };
        }
        if name == "absent" {
            self.absent(value?)?;
            return Ok(());
        }
        let known = self.content_option(option)?
            || self.byte_option(option)?
            || self.packet_option(option)?
            || self.state_option(option)?
            || self.name_option(option)?
            || self.information_option(option)?;
        if known {
            return Ok(());
        }
        match Transform::parse(name, value.unwrap_or_default())? {
            Some(transform) => self.transform(transform),
            None => Err("this option is not judged".to_owned()),
        }
    }

    /// Begins the tests of a buffer.
    fn enter(&mut self, buffer: Buffer, value: &str) -> Result<(), String> {
        if !value.is_empty() {
            return Err(format!("has no value, but {value} is given"));
        }
        self.settle()?;
        self.decoded = None;
        if buffer.is_header() {
            self.only_packets = Some(buffer.name());
            self.check_header(match buffer {
                Buffer::TcpHeader => Protocol::Tcp,
                Buffer::UdpHeader => Protocol::Udp,
                Buffer::Icmpv4Header => Protocol::IcmpVersion(4),
                Buffer::Icmpv6Header => Protocol::IcmpVersion(6),
                _ => Protocol::Ip,
            })?;
        }
        self.sticky =
            (buffer != Buffer::Payload).then(|| self.list(buffer, &[], buffer.is_multiple()));
        Ok(())
    }

    /// Refuses a test of a header that no packet of the rule has, so that the rule would never match.
    fn check_header(&self, header: Protocol) -> Result<(), String> {
        match self.rule.header.protocol.may_have(header) {
            true => Ok(()),
            false => Err("no packet of the rule's protocol has this header".to_owned()),
        }
    }

    /// Adds the test of a buffer with a number.
    fn number(&mut self, buffer: Buffer, value: &str) -> Result<(), String> {
        self.settle()?;
        let bound = match buffer {
            Buffer::TlsVersion => number::tls_version(value)?,
            Buffer::DnsCode => number::dns_code(value)?,
            _ => number::bound(value, u8::MAX.into(), self.ends())?,
        };
        let list = self.list(buffer, &[], false);
        self.rule.lists[list].tests.push(Test::Number(bound));
        (self.sticky, self.last_list, self.decoded) = (None, None, None);
        Ok(())
    }

    /// Adds a transform to the buffer that has just begun.
    fn transform(&mut self, transform: Transform) -> Result<(), String> {
        let Some(list) = self.sticky else {
            return Err(
                "a transform follows a buffer, as in `http.uri; strip_whitespace;`".to_owned()
            );
        };
        let List { buffer, transforms, tests, .. } = &self.rule.lists[list];
        let whole = [&transforms[..], &[transform]].concat();
        let buffer = *buffer;
        if tests.is_empty() {
            self.rule.lists[list].transforms = whole;
        } else if transforms.is_empty() && self.last.is_none() {
            self.sticky = Some(self.list(buffer, &whole, buffer.is_multiple()));
        } else {
            return Err("a transform belongs before the contents".to_owned());
        }
        Ok(())
    }

    /// `absent` after a buffer: the message does not have it, or with `or_else`, may not have it.
    fn absent(&mut self, value: &str) -> Result<(), String> {
        let Some(list) = self.sticky else {
            return Err("no buffer precedes it".to_owned());
        };
        let List { buffer, presence, tests, .. } = &mut self.rule.lists[list];
        if buffer.facts().application != Some(Application::Http) {
            return Err(format!("{}: the buffer comes in parts", buffer.name()));
        }
        if !tests.is_empty() || *presence != Presence::Needed {
            return Err("it belongs directly after the buffer".to_owned());
        }
        *presence = match value.trim() {
            "" => Presence::Absent,
            "or_else" => Presence::Optional,
            other => return Err(format!("{other}: expected or_else or nothing")),
        };
        Ok(())
    }

    /// Index of the list of a buffer, which is made if it is not there or has to be another one.
    fn list(&mut self, buffer: Buffer, transforms: &[Transform], another: bool) -> usize {
        let is_same = |list: &List| list.buffer == buffer && list.transforms == transforms;
        let found = self
            .rule
            .lists
            .iter()
            .position(is_same)
            .filter(|at| !another || self.rule.lists[*at].tests.is_empty());
        found.unwrap_or_else(|| {
            self.rule.lists.push(List {
                buffer,
                presence: Presence::Needed,
                transforms: transforms.to_vec(),
                tests: Vec::new(),
            });
            self.rule.lists.len() - 1
        })
    }

    /// The list of the next test.
    fn current(&mut self) -> usize {
        match self.sticky {
            Some(list) => list,
            None => self.list(Buffer::Payload, &[], false),
        }
    }

    /// Adds a test; returns its list and its number. A relative test without a buffer of its own belongs to the
    /// buffer of the test before it.
    fn push(&mut self, test: Test) -> Result<(usize, usize), String> {
        let all: usize = self.rule.lists.iter().map(|list| list.tests.len()).sum();
        if all >= MAX_TESTS {
            return Err(format!("more than {MAX_TESTS} tests"));
        }
        if let Some((list, at)) = self.decoded {
            if let Test::Base64 { tests, .. } = &mut self.rule.lists[list].tests[at] {
                tests.push(test);
                return Ok((list, usize::MAX));
            }
            return Err("no base64_decode before it".to_owned());
        }
        let follows =
            test.is_relative() && !matches!(test, Test::Content(_)) && self.sticky.is_none();
        let list = match self.last_list.filter(|_| follows) {
            Some(list) => list,
            None => self.current(),
        };
        self.last_list = Some(list);
        let tests = &mut self.rule.lists[list].tests;
        tests.push(test);
        Ok((list, tests.len() - 1))
    }

    /// Checks what only the whole rule shows.
    fn finish(mut self) -> Result<Rule, String> {
        if !self.has_sid {
            return Err("sid is missing".to_owned());
        }
        self.settle()?;
        let has_empty = |list: &List| list.tests.is_empty() && list.presence != Presence::Absent;
        if let Some(list) = self
            .rule
            .lists
            .iter()
            .find(|list| list.presence == Presence::Absent && !list.tests.is_empty())
        {
            return Err(format!("{}: tests of an absent buffer", list.buffer.name()));
        }
        if let Some(list) = self.rule.lists.iter().find(|list| has_empty(list)) {
            return Err(format!("{}: no content follows", list.buffer.name()));
        }
        let empty_base64 =
            |test: &Test| matches!(test, Test::Base64 { tests, .. } if tests.is_empty());
        if self.rule.lists.iter().any(|list| list.tests.iter().any(empty_base64)) {
            return Err("base64_decode without base64_data and contents".to_owned());
        }
        self.rule.silent |= self.rule.action == Action::Pass && !self.alerts;
        self.check_first_tests()?;
        self.check_buffers()?;
        self.set_scope()?;
        self.rule.variables = self.names.len();
        self.rule.shrink();
        Ok(self.rule)
    }

    /// Snort has one position for all buffers, Suricata one for each: a relative test that is the first of its buffer
    /// means different things.
    fn check_first_tests(&self) -> Result<(), String> {
        if self.dialect == Dialect::Suricata || self.rule.lists.len() < 2 {
            return Ok(());
        }
        let mut first =
            self.rule.lists.iter().skip(1).filter_map(|list| Some((list, list.tests.first()?)));
        match first.find(|(_, test)| test.is_relative()) {
            Some((list, _)) => Err(format!(
                "{}: a relative option is the first; its position would be in another buffer",
                list.buffer.name()
            )),
            None => Ok(()),
        }
    }

    /// All buffers of a rule are of one application and one direction, and those that the header and the flow name.
    fn check_buffers(&mut self) -> Result<(), String> {
        let mut application = match self.rule.header.protocol {
            Protocol::Application(application) => Some(application),
            _ => None,
        };
        for list in &self.rule.lists {
            let facts = list.buffer.facts();
            let Some(own) = facts.application else { continue };
            if application.is_some_and(|application| application != own) {
                return Err(format!(
                    "{}: the rule is about {}",
                    list.buffer.name(),
                    application.map_or("", |a| a.name())
                ));
            }
            application = Some(own);
            let is_dns = own == Application::Dns;
            let protocol = self.rule.header.protocol;
            let is_other = protocol.is_icmp() || protocol == Protocol::Sctp;
            if is_other || (protocol == Protocol::Udp && !is_dns) {
                return Err(format!(
                    "{}: the protocol of the header has no such buffer",
                    list.buffer.name()
                ));
            }
            if list.buffer == Buffer::FileData && self.dialect != Dialect::Suricata {
                if self.rule.flow.to_server == Some(true) {
                    return Err("file_data: files in requests are not read".to_owned());
                }
                self.rule.flow.to_server = Some(false);
            }
            let Some(to_server) = facts.to_server else { continue };
            if self.rule.flow.to_server.is_some_and(|own| own != to_server) {
                return Err(format!(
                    "{}: its bytes have the other direction than the rule",
                    list.buffer.name()
                ));
            }
            self.rule.flow.to_server = Some(to_server);
        }
        self.check_ports_of_bodies()
    }

    /// In Snort, `file_data` is also the body of a mail; here it is that of HTTP only.
    fn check_ports_of_bodies(&self) -> Result<(), String> {
        let HeaderTest { source_ports, destination_ports, .. } = &self.rule.header;
        let mail = |ports: &Ports| {
            [25, 110, 143].into_iter().any(|port| !ports.is_any() && ports.contains(port))
        };
        let has_body = self.rule.lists.iter().any(|list| list.buffer == Buffer::FileData);
        let plain = !matches!(self.rule.header.protocol, Protocol::Application(_));
        if has_body && plain && (mail(source_ports) || mail(destination_ports)) {
            return Err("file_data: bodies of mails (ports 25, 110, 143) are not read".to_owned());
        }
        if has_body && plain && self.dialect != Dialect::Suricata {
            let service = |(name, value): &(String, String)| {
                name == "service" && matches!(&**value, "imap" | "pop3" | "smtp" | "ftp-data")
            };
            if self.rule.metadata.iter().any(service) {
                return Err("file_data: bodies of mails and of FTP are not read".to_owned());
            }
        }
        Ok(())
    }

    /// Decides whether tests of the payload apply to packets, streams or both.
    fn set_scope(&mut self) -> Result<(), String> {
        let is_of_application = |list: &List| list.buffer.facts().application.is_some();
        let of_application = self.rule.lists.iter().any(is_of_application);
        let has_header = self.rule.lists.iter().any(|list| list.buffer.is_header());
        if of_application && (has_header || !self.rule.packet.is_empty()) {
            return Err(
                "tests of a packet's headers beside buffers of an application are not judged"
                    .to_owned(),
            );
        }
        if self.only_streams && self.only_packets.is_some() {
            return Err("the rule is about streams and about packets".to_owned());
        }
        let payload = self.rule.lists.iter().find(|list| list.buffer == Buffer::Payload);
        let anchored = payload.is_some_and(|list| list.tests.iter().any(is_anchored));
        let stream = match self.rule.header.protocol {
            Protocol::Tcp | Protocol::Ip | Protocol::IpVersion(_) | Protocol::Application(_) => {
                true
            }
            Protocol::Udp | Protocol::Sctp | Protocol::Icmp | Protocol::IcmpVersion(_) => false,
        };
        self.rule.scope = match () {
            () if payload.is_none() || !stream || self.only_packets.is_some() => {
                Scope { packets: true, streams: false, alone: true }
            }
            () if self.only_streams => Scope { packets: false, streams: true, alone: false },
            () => Scope { packets: anchored, streams: true, alone: true },
        };
        if of_application && payload.is_some() && !self.rule.scope.streams {
            return Err(
                "tests of a packet's payload beside buffers of an application are not judged"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// True if a content has a place from the beginning.
fn is_anchored(test: &Test) -> bool {
    use crate::rule::Value;
    matches!(test, Test::Content(content)
        if !content.relative && (content.len.is_some() || content.from != Value::Number(0)))
}

fn action(name: &str) -> Result<Action, String> {
    match name {
        "alert" => Ok(Action::Alert),
        "pass" => Ok(Action::Pass),
        "drop" | "sdrop" | "block" => Ok(Action::Drop),
        "reject" | "rejectsrc" | "rejectdst" | "rejectboth" => Ok(Action::Reject),
        other => Err(format!("the action {other} is not judged")),
    }
}

fn header(raw: &RawRule, variables: &Variables) -> Result<HeaderTest, String> {
    let header = &raw.header;
    let protocol = match &*header.protocol {
        "ip" => Protocol::Ip,
        "ip4" | "ipv4" => Protocol::IpVersion(4),
        "ip6" | "ipv6" => Protocol::IpVersion(6),
        "tcp" | "tcp-pkt" | "tcp-stream" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        "icmp" => Protocol::Icmp,
        "icmpv4" => Protocol::IcmpVersion(4),
        "icmpv6" => Protocol::IcmpVersion(6),
        name => match Application::from_name(name) {
            Some(application) => Protocol::Application(application),
            None => return Err(format!("the protocol {name} is not recognised in traffic")),
        },
    };
    Ok(HeaderTest {
        protocol,
        source: Addresses::parse(&header.source, variables)?,
        source_ports: Ports::parse(&header.source_port, variables)?,
        destination: Addresses::parse(&header.destination, variables)?,
        destination_ports: Ports::parse(&header.destination_port, variables)?,
        both: header.direction == Direction::Both,
    })
}

#[cfg(test)]
mod tests;
