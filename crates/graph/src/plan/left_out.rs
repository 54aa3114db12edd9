//! Bloom pre-filters that the planner leaves out: the nodes after them are tables that accept only frames that the
//! rules pass, so a pre-filter would look up every frame once more and change nothing.
//!
//! Only rules in the text are compared; those of an interface are its owner's. A pre-filter that would be in the kernel
//! stays if the table after it cannot be there. So does one with a tag or exported counters, which are referred to.
//! A frame with contradictory headers may pass now: rules are compared with decoded headers, filters in the
//! compat reading with bytes at fixed places.

use super::{Draft, Feed, Join};
use crate::node::accepted::RuleIndex;
use crate::node::{Needs, Settings};
use fyke_table::prefilter::Rule;
use std::collections::BTreeSet;

/// Fewest rows of a table for each of its shapes; below, a filter is not called a table.
const ROWS: usize = 4;

/// Finds the drafts that change nothing, each with whether it can be left out, and the reason.
pub(super) fn find(drafts: &[Draft]) -> Vec<(usize, bool, String)> {
    if drafts.iter().any(|draft| draft.class.edits) {
        // A table that is edited may accept more later.
        return Vec::new();
    }
    let is_bloom = |(_, draft): &(usize, &Draft)| draft.class.name == "bloom";
    let blooms = drafts.iter().enumerate().filter(is_bloom);
    let found = blooms.filter_map(|(at, draft)| {
        let (can_go, why) = reason(drafts, at, draft)?;
        Some((at, can_go, why))
    });
    found.collect()
}

/// The reason for or against leaving out a pre-filter that changes nothing; `None` if it changes something.
fn reason(drafts: &[Draft], at: usize, bloom: &Draft) -> Option<(bool, String)> {
    let free = bloom.tags.is_empty() && !bloom.exported && !bloom.inverted;
    if !free || bloom.join != Join::Any {
        return None;
    }
    let rules = rules(&bloom.settings)?;
    let fed = |draft: &&Draft| draft.feeds.iter().any(|feed| feed.from == at);
    let after: Vec<_> = drafts.iter().filter(fed).collect();
    let mut why = Vec::new();
    for table in &after {
        let only = [Feed { from: at, class: None }];
        if table.feeds != only || table.inverted || table.join != Join::Any {
            return None;
        }
        let rows = (table.class.accepts)(&table.settings)?;
        let shapes: BTreeSet<_> = rows.iter().map(|row| row.shape()).collect();
        let is_table = rows.len() >= ROWS * shapes.len().max(1);
        if !is_table || !rows.iter().all(|row| rules.pass(row)) {
            return None;
        }
        why.push(format!("{} is a table of {} rows", short(table), rows.len()));
    }
    if why.is_empty() {
        return None;
    }
    let (name, why) = (short(bloom), why.join(", "));
    let can_go = !is_below(drafts, bloom) || after.iter().all(|table| follows(table));
    let text = match can_go {
        true => format!(
            "{name} is left out: {why}, which its rules all pass, and quicker than the rules"
        ),
        false => format!(
            "{name} stays: {why}, which its rules all pass, but only the rules can be in the kernel (a bpf without \
             live=n can be there, too)"
        ),
    };
    Some((can_go, text))
}

/// The text of a node, cut.
fn short(draft: &Draft) -> String {
    const SHOWN: usize = 60;
    let text = draft.written.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{} …)", &text[..end]),
        None => text,
    }
}

/// The rules of a text; `None` if it has none, or does not reject by them.
fn rules(settings: &Settings) -> Option<RuleIndex> {
    let texts = settings.pairs().iter().filter(|(name, _)| name == "expression");
    let rules = texts.map(|(_, text)| Rule::parse(text)).collect::<Result<Vec<_>, _>>().ok()?;
    let is_on = settings.text("enable").is_none() || settings.flag("enable").ok()?;
    let rejects = is_on && !settings.flag("negative").ok()?;
    (!rules.is_empty() && rejects).then(|| RuleIndex::new(rules))
}

/// True if the rules would be in the kernel: the pre-filter gets all frames of a device.
fn is_below(drafts: &[Draft], bloom: &Draft) -> bool {
    let of_device = |feed: &Feed| drafts[feed.from].class.name == "device";
    let own = bloom.settings.flag("own").unwrap_or(false);
    !own && bloom.feeds.iter().any(of_device)
}

/// True if a node can be in the kernel.
fn follows(table: &Draft) -> bool {
    matches!(
        (table.class.needs)(&table.settings),
        Needs::Filters { .. } | Needs::Texts(_) | Needs::Classes(_)
    )
}

#[cfg(test)]
mod tests {
    use crate::classes::Classes;
    use crate::plan::Plan;

    /// The classes of the nodes, and the number of those that are left out.
    fn nodes(text: &str) -> (Vec<String>, usize) {
        let plan = Plan::new(&[text], &Classes::new()).unwrap();
        let left_out = plan.left_out.iter().filter(|why| why.contains("is left out"));
        (plan.nodes.iter().map(|node| node.class.name.to_owned()).collect(), left_out.count())
    }

    const TABLE: &str = "(table, key=\"dst dport\", expression=\"10.0.0.1 80 = 1\", \
                         expression=\"10.0.0.2 80 = 1\", expression=\"10.0.0.3 80 = 1\", \
                         expression=\"10.0.0.4 80 = 1\")";
    const HOSTS: &str = "ip src 10.0.0.1 or ip src 10.0.0.2 or ip src 10.0.0.3 or ip src 10.0.0.4";

    #[test]
    fn a_table_makes_its_pre_filter_superfluous() {
        let bloom = "(bloom, expression=\"ip=10.0.0.0/24\")";
        for table in [TABLE.to_owned(), format!("(bpf, {HOSTS})")] {
            let text = format!("(pcapin, a.pcap) > {bloom} > {table} > (packetcount)");
            let (classes, left_out) = nodes(&text);
            assert_eq!((classes.len(), left_out), (3, 1), "{text}: {classes:?}");
        }
        // Several tables, and two texts that share nothing else.
        let text = format!("(pcapin, a.pcap) > {bloom} > [{TABLE} | (bpf, {HOSTS})] > (drop)");
        assert_eq!(nodes(&text), (["pcapin", "table", "bpf", "drop"].map(Into::into).to_vec(), 1));
    }

    #[test]
    fn a_pre_filter_that_changes_something_stays() {
        let stays = |bloom: &str, after: &str| {
            let text = format!("(pcapin, a.pcap) > {bloom} > {after} > (drop)");
            assert_eq!(nodes(&text).1, 0, "{text}");
        };
        let bloom = "(bloom, expression=\"ip=10.0.0.0/24\")";
        // A row that the rules reject; a default; few rows; no table; frames that the table rejects.
        stays("(bloom, expression=\"ip=10.0.0.1\")", TABLE);
        stays(bloom, &TABLE.replace("(table,", "(table, default=2,"));
        stays(bloom, "(bpf, ip src 10.0.0.1)");
        stays(bloom, "(packetcount)");
        stays(bloom, &format!("!{TABLE}"));
        stays(bloom, &format!("[{TABLE} | (packetcount)]"));
        for other in ["negative=y", "enable=n", "export=y", "identifier=rules"] {
            stays(&bloom.replace(')', &format!(", {other})")), TABLE);
        }
        stays("(bloom)", TABLE);
        // Before a table that is not in the kernel, rules in the kernel save the copy of a frame.
        let on_device =
            |table: &str| nodes(&format!("(device, lo) > {bloom} > {table} > (drop)")).1;
        assert_eq!(on_device(TABLE), 0);
        assert_eq!(on_device(&format!("(bpf, {HOSTS}, live=n)")), 0);
        assert_eq!(on_device(&format!("(bpf, {HOSTS})")), 1);
    }
}
