//! Common parts of the tests against libpcap: both sides compile a text, the programs run over frames, and all
//! results are counted.

pub mod dress;
pub mod machine;

use fyke_filter::ast::{AddressFamily, Carrier};
use fyke_filter::{Options, Predicate, Primitive, PrimitiveKind, compile};
use fyke_frame::{BATCH_CAPACITY, Batch, Condition, Frame, LinkType, Meta};
use fyke_lab::peers::libpcap::{Compile, Libpcap, OwnedFrame, Program};
use fyke_pass::{Opcode, PassSet};
use fyke_testkit::corpus::Corpus;
use fyke_testkit::random::Random;

/// Error for a text that no frame can match.
pub const NEVER: &str = "no frame can match this filter";

/// Errors that depend on the analysis of an optimiser, and on how early it removes unused values; see
/// docs/language.md.
pub const FOUND_OUT: [&str; 4] =
    [NEVER, "division by zero", "modulus by zero", "shift by more than 31 bits"];

/// An internal error of libpcap: its code for tags in the metadata left a jump target open.
const NO_TARGET: &str = "no destination found for block-local relative jump";

/// libpcap's compilations of a text.
pub struct Reference {
    pub plain: Result<Program, String>,
    pub optimized: Result<Program, String>,
}

/// Statistics of a comparison.
#[derive(Debug, Default)]
pub struct Tally {
    pub texts: usize,
    refused_by_both: usize,
    /// Texts that only libpcap's optimiser found to match nothing.
    never_only_there: Vec<String>,
    /// Texts that only fyke found to match nothing, including those with computed operands that are zero or too
    /// large.
    never_only_here: Vec<String>,
    unsupported: Vec<String>,
    /// Verdicts that are undefined in libpcap, and those that it does not reach.
    unset: usize,
    endless: usize,
    /// Texts refused as never matching, of which this was verified.
    pub never_checked: usize,
    pub verdicts: usize,
    pub accepted: usize,
    /// Contradictions of libpcap's two programs: (fyke agrees with the plain one, with the optimised one).
    self_contradictions: (usize, usize),
    failures: Vec<String>,
    /// Texts that the engine evaluates in their own order, and those with exceptions in it.
    in_order: usize,
    pub exceptions: usize,
}

impl Reference {
    pub fn new(libpcap: &Libpcap, options: &Options, text: &str) -> Reference {
        let compile = |optimize| {
            let how = Compile {
                link: options.link,
                snaplen: options.snaplen,
                netmask: options.netmask,
                optimize,
                swapped: options.swapped,
            };
            libpcap.compile_with(&how, text)
        };
        Reference { plain: compile(false), optimized: compile(true) }
    }
}

/// Options for most texts.
pub fn options(link: LinkType) -> Options {
    Options { link, ..Options::default() }
}

impl Tally {
    /// Compares acceptance of a text; returns both compilations if both accept it.
    pub fn text<'r>(
        &mut self,
        options: &Options,
        text: &str,
        reference: &'r Reference,
    ) -> Option<(Predicate, &'r Program, &'r Program)> {
        self.texts += 1;
        let (link, ours) = (options.link, compile(text, options));
        match (ours, &reference.plain, &reference.optimized) {
            (Ok(predicate), Ok(plain), Ok(optimized)) => {
                return Some((predicate, plain, optimized));
            }
            (Ok(_), Ok(_), Err(error)) if error.contains("rejects all packets") => {
                self.never_only_there.push(text.to_string());
            }
            (Err(error), Ok(_), _) if error.message().contains("not supported") => {
                self.unsupported.push(text.to_string());
            }
            (Err(_), Err(_), _) | (Err(_), _, Err(_)) => self.refused_by_both += 1,
            (Ok(_), Err(error), _) | (Ok(_), _, Err(error)) if error.contains(NO_TARGET) => {
                println!("libpcap fails within itself on {link} {text:?}: {error}");
            }
            (Ok(_), Err(error), _) | (Ok(_), _, Err(error)) => {
                self.fail(format!("{link} {text:?}: libpcap refuses: {error}"));
            }
            (Err(error), ..) if FOUND_OUT.contains(&error.message()) => {
                self.never_only_here.push(text.to_string());
            }
            (Err(error), ..) => self.fail(format!("{link} {text:?}: only we refuse: {error}")),
        }
        None
    }

    /// Compares verdicts.
    pub fn frames<'f>(
        &mut self,
        (predicate, plain, optimized): (Predicate, &Program, &Program),
        frames: impl Iterator<Item = &'f OwnedFrame>,
    ) {
        let programs = [plain, optimized];
        if registers_clash(&predicate) {
            self.unset += 1;
            return;
        }
        let frames: Vec<&OwnedFrame> = frames.collect();
        self.engine(&predicate, &frames);
        let watched = programs.iter().any(|program| needs_watching(program));
        for &owned in &frames {
            let frame = owned.frame();
            let outcomes = programs.map(|one| machine::run(one.instructions(), &frame, false));
            if watched && outcomes.contains(&machine::Outcome::Endless) {
                self.endless += 1;
                continue;
            }
            let ours = predicate.accepts(&frame);
            let there = programs.map(|one| one.matches(&owned.data, owned.wire_len));
            if outcomes.contains(&machine::Outcome::Unset) || beside_geneve(&predicate, &frame) {
                self.unset += 1;
                continue;
            }
            for (own, theirs) in outcomes.iter().zip(there) {
                assert_eq!(*own, machine::Outcome::Verdict(theirs), "{}", predicate.text());
            }
            if !self.verdict(&predicate, &frame, ours, there) {
                return;
            }
        }
    }

    /// Compares the engine, in batches, with the oracle.
    fn engine(&mut self, predicate: &Predicate, frames: &[&OwnedFrame]) {
        let mut set = PassSet::new(predicate.link());
        let mut edit = set.edit();
        if let Err(error) = edit.add_filter(predicate) {
            return self.fail(format!("{:?}: the engine refuses: {error}", predicate.text()));
        }
        edit.commit();
        self.in_order += usize::from(set.filters().any(|filter| filter.is_in_order()));
        self.exceptions +=
            usize::from(set.passes().any(|pass| {
                pass.instructions.iter().any(|one| one.opcode() == Some(Opcode::Passes))
            }));
        let mut reader = set.reader();
        for some in frames.chunks(BATCH_CAPACITY) {
            let mut batch = Batch::new();
            some.iter().for_each(|owned| batch.push(owned.frame()).expect("one link type"));
            let verdicts = reader.evaluate(&batch, batch.all());
            for (at, frame) in batch.frames().iter().enumerate() {
                if verdicts.get(at) != predicate.accepts(frame) {
                    let (text, bytes) = (predicate.text(), frame.data);
                    return self.fail(format!("{text:?}: the engine errs on {bytes:02x?}"));
                }
            }
        }
    }

    /// Compares a verdict with those of the plain and the optimised program.
    pub fn verdict(
        &mut self,
        predicate: &Predicate,
        frame: &Frame,
        ours: bool,
        there: [bool; 2],
    ) -> bool {
        self.verdicts += 1;
        self.accepted += usize::from(ours);
        if there[0] != there[1] {
            self.self_contradictions.0 += usize::from(ours == there[0]);
            self.self_contradictions.1 += usize::from(ours == there[1]);
        } else if ours != there[0] {
            let bytes: String = frame.data.iter().map(|byte| format!("{byte:02x}")).collect();
            let (text, meta) = (predicate.text(), frame.meta);
            let meta = if meta == Meta::default() { String::new() } else { format!("{meta:?} ") };
            self.fail(format!("{} {text:?}: {ours} here on {meta}{bytes}", predicate.link()));
            return false;
        }
        true
    }

    /// Checks that a text refused as never matching matches none of the frames, whatever libpcap's optimiser
    /// decides.
    pub fn never<'f>(
        &mut self,
        text: &str,
        options: &Options,
        reference: &Reference,
        mut frames: impl Iterator<Item = &'f OwnedFrame>,
    ) {
        let (Err(error), Ok(plain)) = (compile(text, options), &reference.plain) else { return };
        if error.message() == NEVER {
            self.never_checked += 1;
            if frames.any(|frame| plain.matches(&frame.data, frame.wire_len)) {
                self.fail(format!(
                    "{} {text:?}: refused as never matching, but does",
                    options.link
                ));
            }
        }
    }

    pub fn fail(&mut self, what: String) {
        if self.failures.len() < 1000 {
            self.failures.push(what);
        }
    }

    /// Prints the statistics; returns the number of differences.
    pub fn report(&self, name: &str) -> usize {
        let &Tally { texts, refused_by_both, .. } = self;
        let unsupported = self.unsupported.len();
        let (there, here) = (self.never_only_there.len(), self.never_only_here.len());
        let &Tally { verdicts, accepted, self_contradictions: (plain, optimized), .. } = self;
        let &Tally { unset, endless, .. } = self;
        let (in_order, exceptions) = (self.in_order, self.exceptions);
        println!("{name}: {exceptions} texts with exceptions in the engine, {in_order} in order");
        if unset + endless > 0 {
            println!(
                "{name}: not compared are {unset} verdicts where libpcap reads a memory word that \
                 it has not written, and {endless} where it never ends"
            );
        }
        println!(
            "{name}: {texts} texts, {refused_by_both} refused by both, {unsupported} not supported \
             yet, refused as never matching {there} there only and {here} here only; {verdicts} \
             verdicts, {accepted} accepted; where libpcap's plain and optimised programs differ, \
             {plain} like the plain and {optimized} like the optimised one"
        );
        for text in self.unsupported.iter().take(20) {
            println!("  not supported: {text}");
        }
        for text in self.never_only_there.iter().take(5) {
            println!("  never there: {text}");
        }
        for text in self.never_only_here.iter().take(5) {
            println!("  never here: {text}");
        }
        for failure in self.failures.iter().take(20) {
            println!("  {failure}");
        }
        self.failures.len()
    }

    /// Prints the statistics, and fails if there were differences.
    pub fn finish(self, name: &str) {
        let differences = self.report(name);
        let (there, here) = (self.never_only_there.len(), self.never_only_here.len());
        // fyke imitates libpcap's optimiser but does not copy it: about one text in ten thousand differs.
        assert!(there + here <= 2 + self.texts / 1000, "{there} and {here} are too many");
        assert!(differences == 0, "{differences} differences");
        assert!(self.verdicts == 0 || self.accepted > 0, "nothing was ever accepted");
    }
}

/// Detects a bug of libpcap. It stores the offsets of variable-length headers in memory words; a byte expression
/// before the first test that needs such an offset gets the same word for its own values and overwrites the offset.
pub fn registers_clash(predicate: &Predicate) -> bool {
    const IN_WORDS: [&str; 6] =
        ["IEEE802_11", "IEEE802_11_RADIO", "IEEE802_11_RADIO_AVS", "PRISM_HEADER", "PPI", "PFLOG"];
    let link = predicate.link().to_string();
    if !IN_WORDS.contains(&link.as_str()) {
        return false;
    }
    // Another link header uses the word of the radio header; Geneve uses that of the offset after an 802.11 header
    // or log.
    let radio = !matches!(link.as_str(), "IEEE802_11" | "PFLOG");
    let replaced = predicate.root().primitives().any(|one| match one.kind {
        PrimitiveKind::PppoeSession(_) => radio,
        PrimitiveKind::Geneve(_) => true,
        _ => false,
    });
    if replaced {
        return true;
    }
    // The code of the first test includes the computation of the offsets.
    let own = |index: usize, condition: &Condition| match condition {
        Condition::All(operands) if index == 0 => format!("{:?}", operands.last()),
        other => format!("{other:?}"),
    };
    let primitives = predicate.root().primitives().enumerate();
    let shown: Vec<_> = primitives.map(|(index, one)| (one, own(index, &one.condition))).collect();
    // Finds conditions that use only the offset of a header, and those that use only the offset after it.
    let anywhere = |text: &str| text.contains("Computed") || text.contains("Select");
    let payload = |text: &str| text.contains("Const(24)") || text.contains("4294967292");
    // An expression's own values may look like those of an offset, so expressions do not count as first uses.
    let computes = |one: &Primitive| matches!(one.kind, PrimitiveKind::Relation { .. });
    // libpcap loads the number of an OSI protocol, and addresses of ARP, from that offset even if the link type
    // cannot carry them.
    let not_carried = |one: &Primitive| match &one.kind {
        PrimitiveKind::Protocol { carrier, .. } => {
            matches!(carrier, Carrier::Osi | Carrier::Isis)
        }
        PrimitiveKind::Host { family, .. } | PrimitiveKind::Net { family, .. } => {
            matches!(family, AddressFamily::Arp | AddressFamily::Rarp)
        }
        _ => false,
    };
    let clash = |uses: &dyn Fn(&str) -> bool| {
        let used = |one: &Primitive, text: &str| !computes(one) && (uses(text) || not_carried(one));
        let first = shown.iter().position(|(one, text)| used(one, text));
        first.is_some_and(|first| shown[..first].iter().any(|(one, _)| computes(one)))
    };
    clash(&anywhere) || clash(&payload)
}

/// Detects the same for the offset after a VLAN tag that may be in the metadata.
pub fn registers_clash_live(predicate: &Predicate) -> bool {
    let kinds: Vec<_> = predicate.root().primitives().map(|one| &one.kind).collect();
    let tag = kinds.iter().position(|kind| matches!(kind, PrimitiveKind::Vlan(_)));
    let computes = |kind: &&PrimitiveKind| matches!(kind, PrimitiveKind::Relation { .. });
    registers_clash(predicate) || tag.is_some_and(|tag| kinds[..tag].iter().any(computes))
}

/// Detects texts with a term after `geneve`: libpcap uses the offset of the inner header, which is set only if
/// `geneve` was tested and true.
fn beside_geneve(predicate: &Predicate, frame: &Frame) -> bool {
    let tunnels: Vec<_> = predicate
        .root()
        .primitives()
        .filter(|one| matches!(one.kind, PrimitiveKind::Geneve(_)))
        .map(|one| one.span.start)
        .collect();
    if tunnels.is_empty() {
        return false;
    }
    let mut lost = false;
    let mut held = Vec::new();
    let _ = predicate.trace(frame, &mut |one, answer| {
        lost |= tunnels.iter().any(|at| *at < one.span.start && !held.contains(at));
        if answer == Ok(true) {
            held.push(one.span.start);
        }
    });
    lost
}

/// Returns true if a program jumps backwards: libpcap's interpreter may then not terminate.
fn needs_watching(program: &Program) -> bool {
    program.instructions().iter().any(|one| one.code == 5 && (one.k as i32) < 0)
}

/// Loads libpcap, or prints that it is not installed.
pub fn libpcap() -> Option<Libpcap> {
    match Libpcap::load() {
        Ok(libpcap) => {
            println!("peer: {}", libpcap.version());
            Some(libpcap)
        }
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

/// Returns the first frames of every trace of a link type, unchanged. For rare link types, Ethernet frames are
/// converted.
pub fn frames(
    libpcap: &Libpcap,
    corpus: &Corpus,
    link: LinkType,
    per_file: usize,
) -> Vec<OwnedFrame> {
    let made_of = match link {
        LinkType::LOOP => LinkType::NULL,
        LinkType::IPV4 | LinkType::IPV6 => LinkType::RAW,
        own => own,
    };
    let mut frames = Vec::new();
    let mut ethernet = Vec::new();
    let name = made_of.to_string();
    for path in corpus.traces("") {
        let Ok(read) = libpcap.frames(&path, per_file) else { continue };
        for mut frame in read {
            let from = frame.link.to_string();
            if from == "EN10MB" && ethernet.len() < 600 {
                ethernet.push(frame.clone());
            }
            if from != name {
                continue;
            }
            frame.link = link;
            if link == LinkType::LOOP && frame.data.len() >= 4 {
                frame.data[..4].reverse();
            }
            frames.push(frame);
        }
    }
    if frames.len() < 200 {
        let mut random = Random::new(link.0.into());
        frames.extend(ethernet.iter().map(|frame| dress::dress(&mut random, link, frame)));
    }
    frames
}

/// Returns the frames, and each of them truncated or with some bytes changed.
pub fn spoilt(random: &mut Random, frames: &[OwnedFrame]) -> Vec<OwnedFrame> {
    let mut all = frames.to_vec();
    for frame in frames {
        let mut cut = frame.clone();
        cut.data.truncate(random.below(80.min(frame.data.len() + 1)));
        all.push(cut);
        let mut changed = frame.clone();
        for _ in 0..1 + random.below(3) {
            let place = random.below(60.min(changed.data.len()));
            if let Some(byte) = changed.data.get_mut(place) {
                *byte = random.pick(&[0, 1, 6, 17, 0x40, 0x45, 0x60, 0x08, 0xff, *byte ^ 1]);
            }
        }
        all.push(changed);
    }
    all
}
