//! A file of rules: what is translated, and what is refused.

use crate::compile::{Dialect, translate};
use crate::endpoints::Variables;
use crate::error::Refused;
use crate::read::{MAX_RULES, RawRule, Rules};
use crate::rule::Rule;
use std::collections::HashMap;
use std::io::{self, BufRead};

/// Most refused rules of which the reasons are kept.
pub const MAX_REFUSED: usize = 10_000;

/// Rules after which the progress of a translation is told.
const TELL_EVERY: usize = 1 << 10;

/// The progress of a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The number of rules that are read.
    Read(usize),
    /// The number of rules that are translated, and of those that were read.
    Translated(usize, usize),
}

/// Receives the progress of a translation.
pub type Tell<'t> = &'t mut dyn FnMut(Step);

/// The rules of a text. Every rule is either translated or refused.
#[derive(Debug, Default)]
pub struct Translation {
    /// Translated rules.
    pub rules: Vec<Rule>,
    /// The first 10,000 refused rules, in the order of their lines.
    pub refused: Vec<Refused>,
    /// Number of other refused rules.
    pub refused_more: usize,
}

impl Translation {
    /// Translates a text. Without a language, it is found by the words of each rule; a rule that every language reads
    /// has the language of the others.
    pub fn new(text: &[u8], dialect: Option<Dialect>, variables: &Variables) -> Translation {
        // A text in memory has no errors.
        Translation::read(text, dialect, variables, &mut |_| ()).unwrap_or_default()
    }

    /// Translates the text of a source, as [`new`](Self::new) does, and tells how far it is now and then. Memory: the
    /// rules, and the reasons for 10,000 others.
    ///
    /// # Errors
    /// The error of the source.
    pub fn read(
        from: impl BufRead,
        dialect: Option<Dialect>,
        variables: &Variables,
        tell: Tell<'_>,
    ) -> io::Result<Translation> {
        let mut found = Translation::default();
        let (mut texts, mut languages) = (Vec::new(), Languages::default());
        for rule in Rules::new(from) {
            let (line, text) = rule?;
            match RawRule::parse(&text, line) {
                Ok(raw) if texts.len() < MAX_RULES => {
                    languages.add(&raw);
                    texts.push((line, text));
                }
                Ok(raw) => {
                    let reason = format!("the file has more than {MAX_RULES} rules");
                    found.refuse(Refused { line, sid: raw.sid(), reason });
                }
                Err(refused) => found.refuse(refused),
            }
            let read = texts.len() + found.refused_count();
            if read.is_multiple_of(TELL_EVERY) {
                tell(Step::Read(read));
            }
        }
        let of_all = dialect.unwrap_or_else(|| languages.most());
        let mut of_rules = Translation::default();
        let mut numbers: HashMap<(u32, u32), (usize, usize)> = HashMap::new();
        let all = texts.len();
        for (done, (line, text)) in texts.into_iter().enumerate() {
            if done.is_multiple_of(TELL_EVERY) {
                tell(Step::Translated(done, all));
            }
            let translated = RawRule::parse(&text, line).and_then(|raw| {
                let own = dialect.or_else(|| Dialect::of(&raw)).unwrap_or(of_all);
                translate(&raw, &String::from_utf8_lossy(&text), own, variables)
            });
            match translated {
                Ok(rule) => of_rules.add(rule, line, &mut numbers),
                Err(refused) => of_rules.refuse(refused),
            }
        }
        found.rules = of_rules.rules;
        found.refused.extend(of_rules.refused);
        found.refused.sort_by_key(|refused| refused.line);
        let more = found.refused.len().saturating_sub(MAX_REFUSED);
        found.refused.truncate(MAX_REFUSED);
        found.refused_more += of_rules.refused_more + more;
        Ok(found)
    }

    /// Number of rules of the text.
    pub fn total(&self) -> usize {
        self.rules.len() + self.refused_count()
    }

    /// Number of refused rules.
    pub fn refused_count(&self) -> usize {
        self.refused.len() + self.refused_more
    }

    fn refuse(&mut self, refused: Refused) {
        match self.refused.len() < MAX_REFUSED {
            true => self.refused.push(refused),
            false => self.refused_more += 1,
        }
    }

    /// Adds a rule; of two with the same identifier, the one with the higher revision stays.
    fn add(&mut self, rule: Rule, line: usize, numbers: &mut HashMap<(u32, u32), (usize, usize)>) {
        let id = (rule.gid, rule.sid);
        let Some(&(at, other)) = numbers.get(&id) else {
            numbers.insert(id, (self.rules.len(), line));
            self.rules.push(rule);
            return;
        };
        let (loser, winner, rule) = match rule.rev > self.rules[at].rev {
            true => (other, line, Some(rule)),
            false => (line, other, None),
        };
        let reason = format!("line {winner} has a rule with the same sid");
        self.refuse(Refused { line: loser, sid: Some(id.1), reason });
        if let Some(rule) = rule {
            self.rules[at] = rule;
            numbers.insert(id, (at, line));
        }
    }
}

/// Numbers of rules in each language.
#[derive(Default)]
struct Languages {
    suricata: usize,
    snort2: usize,
    snort3: usize,
}

impl Languages {
    fn add(&mut self, rule: &RawRule) {
        match Dialect::of(rule) {
            Some(Dialect::Suricata) => self.suricata += 1,
            Some(Dialect::Snort2) => self.snort2 += 1,
            Some(Dialect::Snort3) => self.snort3 += 1,
            None => {}
        }
    }

    /// The language of most rules; the first of equals.
    fn most(&self) -> Dialect {
        match () {
            () if self.suricata >= self.snort2.max(self.snort3) => Dialect::Suricata,
            () if self.snort2 >= self.snort3 => Dialect::Snort2,
            () => Dialect::Snort3,
        }
    }
}
