//! The three steps: rules on a packet, on a stream, on a message.

use super::budget::ALERT;
use super::connections::Delivered;
use super::flow::Flow;
use super::index::{Armed, ArmedList, Candidates, Index, Payload};
use super::packet::{Packet, SCTP, TCP};
use super::{Alert, Engine, Give};
use crate::app::Message;
use crate::buffer::{Application, Buffer};
use crate::rule::ThresholdKind;
use crate::rule::{Action, BitTest, Change, FlowTest, Mark, Owner, Presence, Protocol};
use crate::verify::{Variables, Verdict};
use crate::work::{MAX_WORK, Work};
use fyke_frame::walk::view::tcp_flags::RST;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes that the tests of a rule apply to.
enum Bytes<'b> {
    /// A packet with its headers.
    Packet(&'b Packet<'b>),
    /// Bytes of a stream.
    Stream(&'b [u8]),
    /// A message; its payload is the stream, or the packet.
    Message(&'b Message, &'b [u8], &'b [u8]),
}

impl Engine {
    /// Judges rules on a packet; returns those about payloads that have alerted.
    pub(super) fn judge_packet(
        &mut self,
        packet: &Packet<'_>,
        flow: &mut Flow,
        give: Give<'_>,
    ) -> Vec<u32> {
        let index = Arc::clone(&self.rules);
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        index.plain().iter().for_each(|rule| candidates.add(*rule));
        // A segment that no stream takes is judged as a stream of its own.
        let resets = packet.flags().is_some_and(|flags| flags & RST != 0);
        let is_alone = packet.protocol != TCP || flow.midstream || flow.stream.is_none() || resets;
        if !packet.payload.is_empty() {
            let payload = match (packet.protocol, is_alone) {
                (TCP, false) => Payload::Segment,
                (TCP, true) => Payload::Alone,
                _ => Payload::Datagram,
            };
            index.scan_payload(payload, packet.payload, &mut candidates);
        }
        self.arrange(&index, &mut candidates);
        let to_server = flow.is_to_server(packet);
        let mut alerted = Vec::new();
        for (rest, rule) in countdown(&candidates.rules) {
            let Some(armed) = index.get(*rule).filter(|armed| !armed.of_application) else {
                continue;
            };
            let scope = armed.rule.scope;
            let applies = !armed.has_payload || scope.packets || (is_alone && scope.alone);
            if !applies || flow.passed || !self.may_judge(armed, rest) {
                continue;
            }
            let once = armed.lists.is_empty() && is_about_ends(armed);
            if once && flow.alerted_once.contains(&(*rule, to_server)) {
                continue;
            }
            let fits = fits_ends(armed, packet, flow, to_server)
                && armed.rule.packet.iter().all(|test| packet.fits(test));
            if fits && self.judge(armed, packet, flow, &Bytes::Packet(packet)) {
                if once {
                    flow.alerted_once.insert((*rule, to_server));
                }
                if armed.has_payload {
                    alerted.push(*rule);
                }
                self.fire(armed, packet, flow, to_server, None, give);
            }
        }
        self.candidates = candidates;
        alerted
    }

    /// Judges rules on the stream that a piece continues, and on the messages that it completes.
    pub(super) fn judge_piece(
        &mut self,
        packet: &Packet<'_>,
        flow: &mut Flow,
        piece: &Delivered,
        bytes: &[u8],
        alerted: &[u32],
        give: Give<'_>,
    ) {
        if flow.midstream {
            return;
        }
        let to_server = piece.forward;
        let packet = &oriented(packet, flow, to_server);
        if !bytes.is_empty() {
            self.judge_stream(packet, flow, (to_server, piece.missing), bytes, alerted, give);
        }
        for message in &piece.messages {
            self.judge_message(packet, flow, message, give);
        }
    }

    fn judge_stream(
        &mut self,
        packet: &Packet<'_>,
        flow: &mut Flow,
        (to_server, missing): (bool, u64),
        bytes: &[u8],
        alerted: &[u32],
        give: Give<'_>,
    ) {
        let index = Arc::clone(&self.rules);
        let at = usize::from(!to_server);
        let new = flow.windows[at].add(missing, bytes);
        self.counters.beyond_bytes += (bytes.len() - new) as u64;
        let window = &mut flow.windows[at];
        let end = window.end();
        alerted.iter().for_each(|rule| _ = window.done.insert(*rule, end));
        if new == 0 {
            return;
        }
        // A literal may begin in earlier bytes.
        let overlap = new + index.longest().saturating_sub(1);
        let start = window.bytes.len().saturating_sub(overlap);
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        std::mem::take(&mut window.waiting).into_iter().for_each(|rule| candidates.add(rule));
        index.scan_payload(Payload::Stream, &window.bytes[start..], &mut candidates);
        self.arrange(&index, &mut candidates);
        // A rule that is left out now is judged with the next bytes.
        let mut waiting = candidates.out.clone();
        for (rest, rule) in countdown(&candidates.rules) {
            let Some(armed) = index.get(*rule) else { continue };
            if armed.of_application || !armed.rule.scope.streams {
                continue;
            }
            if !self.may_judge(armed, rest) {
                waiting.push(*rule);
                continue;
            }
            if !fits_direction(armed, packet, to_server) {
                continue;
            }
            // The bytes are taken out of the flow while they are judged.
            let window = std::mem::take(&mut flow.windows[at]);
            let (open, from_start) = window.open_to(*rule);
            let judged = from_start || !armed.anchored;
            let holds = judged
                && !flow.passed
                && fits_ends(armed, packet, flow, to_server)
                && self.judge_lists(armed, &Bytes::Stream(open));
            flow.windows[at] = window;
            match holds {
                // Names are tested once, when the bytes are there; a name that is set later does not bring them back.
                true => {
                    flow.windows[at].done.insert(*rule, end);
                    if self.has_all_names(armed, packet, flow) {
                        self.fire(armed, packet, flow, to_server, None, give);
                    }
                }
                false if judged => waiting.push(*rule),
                false => {}
            }
        }
        flow.windows[at].waiting = waiting;
        self.candidates = candidates;
    }

    /// Judges rules on a message.
    pub(super) fn judge_message(
        &mut self,
        packet: &Packet<'_>,
        flow: &mut Flow,
        message: &Message,
        give: Give<'_>,
    ) {
        self.note_message(packet, flow, message);
        if message.buffers.is_empty() && message.application == Application::Tls {
            return;
        }
        self.counters.messages += u64::from(message.complete);
        self.counters.encoded += u64::from(message.is_encoded);
        self.counters.cut_heads += u64::from(message.is_cut);
        self.counters.damaged_bodies += u64::from(message.is_damaged);
        let index = Arc::clone(&self.rules);
        let packet = &oriented(packet, flow, message.to_server);
        let at = usize::from(!message.to_server);
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        index.every().iter().for_each(|rule| candidates.add(*rule));
        for (buffer, bytes) in &message.buffers {
            index.scan(*buffer, bytes, &mut candidates);
        }
        self.arrange(&index, &mut candidates);
        for (rest, rule) in countdown(&candidates.rules) {
            let Some(armed) = index.get(*rule) else { continue };
            let early = armed.needs_body && !message.complete;
            if early || flow.passed || flow.alerted[at].contains(rule) {
                continue;
            }
            if !self.may_judge(armed, rest) || !fits_ends(armed, packet, flow, message.to_server) {
                continue;
            }
            let window = std::mem::take(&mut flow.windows[at]);
            let stream = if armed.anchored && window.start > 0 { &[][..] } else { &window.bytes };
            let holds =
                self.judge(armed, packet, flow, &Bytes::Message(message, stream, packet.payload));
            flow.windows[at] = window;
            if holds {
                flow.alerted[at].push(*rule);
                self.fire(armed, packet, flow, message.to_server, Some(message), give);
            }
        }
        // A handshake of TLS is one message in parts.
        if message.complete && message.application != Application::Tls {
            flow.alerted[at].clear();
        }
        self.candidates = candidates;
    }

    /// True if the lists of a rule and its tests of names hold.
    fn judge(
        &mut self,
        armed: &Armed,
        packet: &Packet<'_>,
        flow: &Flow,
        bytes: &Bytes<'_>,
    ) -> bool {
        self.has_all_names(armed, packet, flow) && self.judge_lists(armed, bytes)
    }

    fn has_all_names(&self, armed: &Armed, packet: &Packet<'_>, flow: &Flow) -> bool {
        armed.rule.bits.iter().all(|test| self.has_names(test, packet, flow))
            && armed.rule.numbers.iter().all(|test| flow.has_number(test))
    }

    /// True if the lists of a rule hold.
    fn judge_lists(&mut self, armed: &Armed, bytes: &Bytes<'_>) -> bool {
        let now_ns = self.clock.now_ns();
        if armed.suspension.holds(now_ns) {
            self.counters.suspended += 1;
            return false;
        }
        self.counters.verified += 1;
        let granted = self.budget.grant();
        let (mut variables, mut work) = (Variables::default(), Work::new(granted));
        let mut is_limited = false;
        let holds = armed.lists.iter().all(|list| {
            let mut judge = |bytes: &[u8]| {
                let mut changed = Cow::Borrowed(bytes);
                for transform in &list.transforms {
                    if !work.take(1 + changed.len() / 4) {
                        is_limited = true;
                        return false;
                    }
                    changed = transform.apply(changed);
                }
                let verdict = list.checks.judge(&changed, &mut variables, &mut work);
                is_limited |= verdict == Verdict::Limit;
                verdict == Verdict::Match
            };
            any_buffer(list, bytes, &mut judge)
        });
        self.budget.spend(work.used());
        if is_limited {
            match granted < MAX_WORK && work.is_out() {
                true => self.counters.unjudged += 1,
                false => self.counters.limited += 1,
            }
            armed.suspension.strike(now_ns, work.used());
        }
        holds
    }

    /// Puts the candidates into the order in which they are judged. If there is little work left for them, those that
    /// are left out for a while go first, then as many as there is no work for.
    fn arrange(&mut self, index: &Index, candidates: &mut Candidates) {
        let Candidates { rules, out, .. } = candidates;
        if !self.budget.is_ample(rules.len()) {
            let now_ns = self.clock.now_ns();
            rules.retain(|rule| {
                let holds = index.get(*rule).is_some_and(|armed| armed.suspension.holds(now_ns));
                if holds {
                    out.push(*rule);
                }
                !holds
            });
            let suspended = out.len();
            self.budget.choose(rules, out);
            self.counters.suspended += suspended as u64;
            self.counters.unjudged += (out.len() - suspended) as u64;
        }
        sort(index, rules);
    }

    /// Begins with a candidate before `rest` others; false if there is no work left for it, which is counted.
    fn may_judge(&mut self, armed: &Armed, rest: usize) -> bool {
        let may = self.budget.next(armed.cost, rest);
        self.counters.unjudged += u64::from(!may);
        may
    }

    fn has_names(&self, test: &BitTest, packet: &Packet<'_>, flow: &Flow) -> bool {
        let has = |name: &Arc<str>| match test.owner {
            Owner::Flow => flow.names.contains(name),
            owner => self.names.has(owner, name, packet),
        };
        test.names.iter().any(|name| has(name) == test.set)
    }

    /// A rule has matched: names are set, and an alert is given unless it is held back.
    fn fire(
        &mut self,
        armed: &Armed,
        packet: &Packet<'_>,
        flow: &mut Flow,
        to_server: bool,
        message: Option<&Message>,
        give: Give<'_>,
    ) {
        let rule = &armed.rule;
        self.counters.matches += 1;
        self.budget.spend(ALERT);
        armed.matches.fetch_add(1, Ordering::Relaxed);
        let limit = rule.threshold.as_ref();
        let alerts = limit.is_none_or(|limit| {
            self.thresholds.alerts((rule.gid, rule.sid), limit, packet, flow.id)
        });
        // The filter is part of what a rule asks; a threshold only limits its alerts.
        let is_filtered = limit.is_some_and(|limit| limit.kind == ThresholdKind::Detection);
        if alerts || !is_filtered {
            rule.marks.iter().for_each(|mark| self.mark(mark, packet, flow));
            rule.sums.iter().for_each(|change| flow.change_number(change));
        }
        if alerts && let Some(tag) = &rule.tag {
            self.tag(tag, packet, flow);
        }
        flow.passed |= rule.action == Action::Pass;
        match () {
            () if rule.silent => self.counters.silent += 1,
            () if !alerts => self.counters.held_back += 1,
            () => {
                self.counters.alerts += 1;
                let (application, frame) = (flow.parser.application(), self.counters.frames);
                give(&Alert { rule, packet, flow, to_server, application, message, frame });
            }
        }
    }

    fn mark(&mut self, mark: &Mark, packet: &Packet<'_>, flow: &mut Flow) {
        if mark.owner != Owner::Flow {
            return self.names.change(mark, packet);
        }
        let is_set = flow.names.contains(&mark.name);
        match (mark.change, is_set) {
            (Change::Set | Change::Toggle, false) => {
                flow.names.insert(Arc::clone(&mark.name));
            }
            (Change::Unset | Change::Toggle, true) => {
                flow.names.remove(&mark.name);
            }
            _ => {}
        }
    }
}

/// True if one of the buffers that a list is about passes.
fn any_buffer(list: &ArmedList, bytes: &Bytes<'_>, judge: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    match bytes {
        Bytes::Packet(packet) => packet.buffer(list.buffer).is_some_and(judge),
        Bytes::Stream(bytes) => list.buffer == Buffer::Payload && judge(bytes),
        Bytes::Message(_, stream, payload) if list.buffer == Buffer::Payload => {
            judge(stream) || judge(payload)
        }
        Bytes::Message(message, ..) => {
            let mut own = message.buffers.iter().filter(|(buffer, _)| *buffer == list.buffer);
            let is_own = list.buffer.facts().application == Some(message.application);
            match list.presence {
                Presence::Needed => own.any(|(_, bytes)| judge(bytes)),
                Presence::Absent => is_own && own.next().is_none(),
                Presence::Optional => {
                    is_own
                        && (message.get(list.buffer).is_none()
                            || own.any(|(_, bytes)| judge(bytes)))
                }
            }
        }
    }
}

/// The candidates, each with the number of those after it.
fn countdown(rules: &[u32]) -> impl Iterator<Item = (usize, &u32)> {
    (0..rules.len()).rev().zip(rules)
}

/// Puts the candidates into the order in which they are judged.
fn sort(index: &Index, rules: &mut [u32]) {
    rules.sort_by_key(|rule| (index.get(*rule).map_or(u8::MAX, |armed| armed.rank), *rule));
}

/// A packet with the direction of a match. Another packet than that of the match has no bytes of it.
fn oriented<'a>(packet: &Packet<'a>, flow: &Flow, to_server: bool) -> Packet<'a> {
    let (source, destination) =
        if to_server { (flow.client, flow.server) } else { (flow.server, flow.client) };
    let mut packet = packet.clone();
    if (packet.source, packet.destination) != (source, destination) {
        (packet.payload, packet.payload_len) = (&[], 0);
        (packet.source, packet.destination) = (source, destination);
    }
    packet
}

/// True if a rule asks nothing but certain addresses, or an application: it alerts once for a direction of a flow, as
/// in Suricata. A rule for all addresses alerts on every packet.
fn is_about_ends(armed: &Armed) -> bool {
    let (rule, header) = (&armed.rule, &armed.rule.header);
    let ports = header.source_ports.is_any() && header.destination_ports.is_any();
    let addresses = !header.source.is_any() || !header.destination.is_any();
    let plain = rule.packet.is_empty()
        && rule.counts.is_empty()
        && rule.bits.is_empty()
        && rule.numbers.is_empty()
        && rule.threshold.is_none();
    let application = matches!(header.protocol, Protocol::Application(_));
    plain && (application || (ports && addresses && rule.flow == FlowTest::default()))
}

/// True if the ends and the direction fit, which never changes for a stream.
fn fits_direction(armed: &Armed, packet: &Packet<'_>, to_server: bool) -> bool {
    let rule = &armed.rule;
    rule.flow.to_server.is_none_or(|own| own == to_server) && packet.has_ends(&rule.header)
}

/// True if protocol, ends and flow fit.
fn fits_ends(armed: &Armed, packet: &Packet<'_>, flow: &Flow, to_server: bool) -> bool {
    let rule = &armed.rule;
    let application = flow.parser.application();
    let protocol = match rule.header.protocol {
        Protocol::Ip => true,
        Protocol::IpVersion(version) => packet.source.0.is_ipv4() == (version == 4),
        Protocol::Tcp => packet.protocol == TCP,
        Protocol::Udp => packet.is_udp(),
        Protocol::Sctp => packet.protocol == SCTP,
        Protocol::Icmp => packet.is_icmp(),
        Protocol::IcmpVersion(version) => packet.is_icmp_of(version),
        Protocol::Application(own) => application == Some(own),
    };
    protocol
        && rule.flow.established.is_none_or(|own| own == flow.established)
        && Application::ALL.iter().zip(rule.flow.applications).all(|(own, wanted)| {
            wanted.is_none_or(|wanted| {
                flow.parser.is_decided() && (application == Some(*own)) == wanted
            })
        })
        && rule.counts.iter().all(|count| flow.fits(count))
        && fits_direction(armed, packet, to_server)
}
