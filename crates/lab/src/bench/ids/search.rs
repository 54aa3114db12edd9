//! The engines of the case `search`: fyke's index with its verifier, and Hyperscan with PCRE2 after it.
//!
//! Both first search for one literal of each rule, the longest, and then check the others and the expressions.

use crate::peers::hyperscan::{Database, Hyperscan};
use crate::peers::pcre2::{Expression, FLAGS, Pcre2};
use aho_corasick::AhoCorasick;
use fyke_frame::Frame;
use fyke_frame::walk::{Layers, walk_again};
use fyke_ids::engine::{Candidates, Payload};
use fyke_ids::read::RawRule;
use fyke_ids::rule::Test;
use fyke_ids::verify::{Variables, Verdict};
use fyke_ids::work::Work;
use fyke_ids::{Index, Translation};
use std::fmt::Write;

/// Fewest bytes of a literal that is searched for.
const MIN_LITERAL: usize = 3;

/// The payload of a frame's innermost packet.
pub fn payload<'a>(frame: &Frame<'a>) -> &'a [u8] {
    let mut layers = Layers::new();
    walk_again(frame, &mut layers);
    layers.payload()
}

/// The conditions of a rule, wherever they are in the payload.
#[derive(Debug)]
pub struct Conditions {
    /// The rule that fyke judges.
    pub text: String,
    /// Bytes, and whether case does not matter.
    contents: Vec<(Vec<u8>, bool)>,
    /// Expressions with their flags.
    expressions: Vec<(Vec<u8>, u32)>,
}

impl Conditions {
    /// The conditions of a rule; none if nothing positive is in it.
    pub fn of(text: &str) -> Option<Conditions> {
        let rule = Translation::new(text.as_bytes(), None, &fyke_ids::Variables::default());
        let rule = rule.rules.into_iter().next()?;
        let tests = rule.lists.iter().flat_map(|list| &list.tests);
        let contents: Vec<(Vec<u8>, bool)> = tests
            .filter_map(|test| match test {
                Test::Content(content) if !content.negated => {
                    Some((content.bytes.to_vec(), content.nocase))
                }
                _ => None,
            })
            .collect();
        let raw = RawRule::parse(text.as_bytes(), 1).ok()?;
        let options = raw.options.iter().filter(|option| option.name == "pcre");
        let expressions: Vec<(Vec<u8>, u32)> =
            options.filter_map(|option| expression(&option.value)).collect();
        let has_literal = contents.iter().any(|(bytes, _)| bytes.len() >= MIN_LITERAL);
        if !has_literal {
            return None;
        }
        let mut conditions = Conditions { text: String::new(), contents, expressions };
        conditions.text = conditions.rule();
        let own =
            Translation::new(conditions.text.as_bytes(), None, &fyke_ids::Variables::default());
        (own.rules.len() == 1).then_some(conditions)
    }

    fn rule(&self) -> String {
        let mut text = "alert ip any any -> any any (".to_owned();
        for (bytes, nocase) in &self.contents {
            let case = if *nocase { " nocase;" } else { "" };
            let _ = write!(text, "content:\"|{}|\";{case} ", super::hex(bytes));
        }
        for (bytes, flags) in &self.expressions {
            let letters = FLAGS.iter().filter(|(_, flag)| flags & flag != 0);
            let letters: String = letters.map(|(letter, _)| char::from(*letter)).collect();
            let _ = write!(text, "pcre:\"/{}/{letters}\"; ", String::from_utf8_lossy(bytes));
        }
        text + "sid:1;)"
    }

    /// The literal that is searched for.
    fn literal(&self) -> (usize, &[u8], bool) {
        let longest = self.contents.iter().enumerate().max_by_key(|(_, (bytes, _))| bytes.len());
        longest.map_or((0, &[], false), |(at, (bytes, nocase))| (at, bytes, *nocase))
    }
}

/// The expression of an option, if it is a positive one of text, with the flags that matter here.
fn expression(value: &[u8]) -> Option<(Vec<u8>, u32)> {
    let text = value.trim_ascii().strip_prefix(b"\"")?.strip_suffix(b"\"")?.strip_prefix(b"/")?;
    let end = text.iter().rposition(|byte| *byte == b'/')?;
    std::str::from_utf8(&text[..end]).ok()?;
    let letters = &text[end + 1..];
    // The place of an expression does not matter here; what changes its meaning otherwise leaves it out.
    if letters.iter().any(|letter| b"AEG".contains(letter)) {
        return None;
    }
    let flags = FLAGS.iter().filter(|(letter, _)| letters.contains(letter));
    Some((text[..end].to_vec(), flags.map(|(_, flag)| flag).sum()))
}

/// An engine.
pub enum Search {
    /// Ours, with a room for candidates, and the number of each rule by its identifier.
    Fyke(Box<Index>, Candidates),
    /// Hyperscan with the checks of each rule after it.
    Hyperscan(Database, Vec<Checks>, Vec<u32>),
}

/// The check of a rule after its literal was found.
pub struct Checks {
    contents: Vec<AhoCorasick>,
    expressions: Vec<Expression>,
}

impl Search {
    /// Ours.
    pub fn fyke(conditions: &[Conditions]) -> Search {
        let mut rules = Vec::new();
        for (number, one) in (0..).zip(conditions) {
            let none = fyke_ids::Variables::default();
            for mut rule in Translation::new(one.text.as_bytes(), None, &none).rules {
                rule.sid = number;
                rules.push(rule);
            }
        }
        Search::Fyke(Box::new(Index::new(rules)), Candidates::default())
    }

    /// Hyperscan's database of the literals.
    ///
    /// # Errors
    /// If it is not installed, or refuses them.
    pub fn literals(conditions: &[Conditions]) -> Result<Database, String> {
        let library = Hyperscan::load().map_err(|error| error.to_string())?;
        let literal = |one: &Conditions| {
            let (_, bytes, nocase) = one.literal();
            let bytes: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("{}{bytes}", if nocase { "(?i)" } else { "" })
        };
        let literals: Vec<String> = conditions.iter().map(literal).collect();
        library.compile(&literals).map_err(|error| error.to_string())
    }

    /// Hyperscan with PCRE2 after it.
    ///
    /// # Errors
    /// If one of them is not installed, or refuses an expression.
    pub fn hyperscan(conditions: &[Conditions]) -> Result<Search, String> {
        let database = Search::literals(conditions)?;
        let pcre = Pcre2::load().map_err(|error| format!("PCRE2 cannot be loaded: {error}"))?;
        let mut all = Vec::new();
        for one in conditions {
            let (searched, ..) = one.literal();
            let others = one.contents.iter().enumerate().filter(|(at, _)| *at != searched);
            let content = |(_, (bytes, nocase)): (usize, &(Vec<u8>, bool))| {
                AhoCorasick::builder().ascii_case_insensitive(*nocase).build([bytes])
            };
            let contents = others.map(content).collect::<Result<_, _>>();
            let expression = |(text, flags): &(Vec<u8>, u32)| pcre.compile(text, *flags);
            let expressions: Option<Vec<_>> = one.expressions.iter().map(expression).collect();
            all.push(Checks {
                contents: contents.map_err(|error| error.to_string())?,
                expressions: expressions.ok_or_else(|| format!("PCRE2 refuses {}", one.text))?,
            });
        }
        Ok(Search::Hyperscan(database, all, Vec::new()))
    }

    /// Calls `found` with the number of each rule that matches.
    pub fn judge(&mut self, payload: &[u8], found: &mut impl FnMut(u32)) {
        match self {
            Search::Fyke(index, candidates) => {
                candidates.clear();
                index.scan_payload(Payload::Stream, payload, candidates);
                for armed in candidates.rules.iter().filter_map(|rule| index.get(*rule)) {
                    let (mut variables, mut work) = (Variables::default(), Work::default());
                    let mut holds = armed
                        .lists
                        .iter()
                        .map(|list| list.checks.judge(payload, &mut variables, &mut work));
                    if holds.all(|verdict| verdict == Verdict::Match) {
                        found(armed.rule.sid);
                    }
                }
            }
            Search::Hyperscan(database, checks, room) => {
                room.clear();
                database.all(payload, room);
                for rule in room {
                    let Checks { contents, expressions } = &mut checks[*rule as usize];
                    if contents.iter().all(|content| content.is_match(payload))
                        && expressions.iter_mut().all(|one| one.is_in(payload))
                    {
                        found(*rule);
                    }
                }
            }
        }
    }
}
