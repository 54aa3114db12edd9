//! A file of rules: what is translated, and what is refused.

use crate::compile::{Dialect, translate};
use crate::endpoints::Variables;
use crate::error::Refused;
use crate::read::{MAX_RULES, RawRule, rules};
use crate::rule::Rule;
use std::collections::HashMap;

/// The rules of a text. Every rule is either translated or refused.
#[derive(Debug, Default)]
pub struct Translation {
    /// Translated rules.
    pub rules: Vec<Rule>,
    /// Refused rules, in the order of their lines.
    pub refused: Vec<Refused>,
}

impl Translation {
    /// Translates a text. Without a language, it is found by the words of each rule; a rule that every language reads
    /// has the language of the others.
    pub fn new(text: &[u8], dialect: Option<Dialect>, variables: &Variables) -> Translation {
        let mut found = Translation::default();
        let mut raw = Vec::new();
        for (number, (line, text)) in rules(text).into_iter().enumerate() {
            if number >= MAX_RULES {
                let reason = format!("the file has more than {MAX_RULES} rules");
                found.refused.push(Refused { line, sid: None, reason });
                continue;
            }
            match RawRule::parse(&text, line) {
                Ok(rule) => raw.push((rule, text)),
                Err(refused) => found.refused.push(refused),
            }
        }
        let of_all = dialect.unwrap_or_else(|| majority(raw.iter().map(|(rule, _)| rule)));
        let mut numbers: HashMap<(u32, u32), (usize, usize)> = HashMap::new();
        for (raw, text) in &raw {
            let own = dialect.or_else(|| Dialect::of(raw)).unwrap_or(of_all);
            match translate(raw, &String::from_utf8_lossy(text), own, variables) {
                Ok(rule) => found.add(rule, raw.line, &mut numbers),
                Err(refused) => found.refused.push(refused),
            }
        }
        found.refused.sort_by_key(|refused| refused.line);
        found
    }

    /// Number of rules of the text.
    pub fn total(&self) -> usize {
        self.rules.len() + self.refused.len()
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
        self.refused.push(Refused { line: loser, sid: Some(id.1), reason });
        if let Some(rule) = rule {
            self.rules[at] = rule;
            numbers.insert(id, (at, line));
        }
    }
}

/// The language of most rules that have one.
fn majority<'r>(rules: impl Iterator<Item = &'r RawRule>) -> Dialect {
    let mut counts = [(Dialect::Suricata, 0), (Dialect::Snort2, 0), (Dialect::Snort3, 0)];
    for dialect in rules.filter_map(Dialect::of) {
        for (own, count) in &mut counts {
            *count += usize::from(*own == dialect);
        }
    }
    // The first of equals: Suricata.
    counts
        .into_iter()
        .rev()
        .max_by_key(|(_, count)| *count)
        .map_or(Dialect::Suricata, |(dialect, _)| dialect)
}
