//! Checks links between documents: the file must exist, and so must the heading.

use super::{Tree, Violation};

/// Checks every Markdown file.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.ending_in(".md") {
        for (line, target) in links(text) {
            if let Some(message) = broken(tree, path, text, target) {
                found.push(Violation::new(path, line, message));
            }
        }
    }
    found
}

/// The reason why a link is broken.
fn broken(tree: &Tree, from: &str, own_text: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let Some(path) = resolve(from, file) else {
        return Some(format!("link `{target}` leads out of the repository"));
    };
    if !file.is_empty() && !tree.has(&path) {
        return Some(format!("link `{target}`: there is no `{path}`"));
    }
    let text = if file.is_empty() { own_text } else { tree.text(&path).unwrap_or_default() };
    let checkable = !anchor.is_empty() && (file.is_empty() || path.ends_with(".md"));
    (checkable && !headings(text).any(|heading| heading == anchor))
        .then(|| format!("link `{target}`: no heading gives `#{anchor}`"))
}

/// The path from the root; `None` above the root.
pub fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The lines outside fenced blocks, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((number + 1, line))
    })
}

/// Line and target of `[…](target)` and `[…]: target`, code spans left out.
pub fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Even pieces between back-ticks are prose, odd pieces are code.
        let mut at = 0;
        for (index, piece) in line.split('`').enumerate() {
            let start = at;
            at += piece.len() + 1;
            if index % 2 == 1 {
                continue;
            }
            for (open, _) in piece.match_indices("](") {
                // The text of a link may contain code, so its target is read from the whole line.
                let rest = &line[start + open + 2..];
                let end = rest.find([')', ' ']).unwrap_or(rest.len());
                found.push((number, rest[..end].trim_matches(['<', '>'])));
            }
        }
        if let Some((_, target)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
            found.push((number, target.split_whitespace().next().unwrap_or_default()));
        }
    }
    found
}

/// The anchors that a renderer makes of the headings.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        let tree = Tree::of(&[("docs/a.md", text), ("README.md", "# Read `me`, please\n")]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        let text = "# Top\n[a](../README.md)\n[b](../README.md#read-me-please)\n\
            [`c`](#top) [d](a.md)\n\
            [e](https://example.org/x) `[f](nowhere)` [g](..)\n[h]: ../README.md \"title\"\n\
            ```\n[i](nowhere)\n```\n";
        assert_eq!(messages(text), Vec::<String>::new());
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        assert_eq!(
            messages("x\n[a](b.md)\n"),
            ["docs/a.md:2: link `b.md`: there is no `docs/b.md`"]
        );
        assert_eq!(messages("[`a`](../READ.md#x)").len(), 1);
        assert_eq!(messages("[a](../README.md#other)").len(), 1);
        assert_eq!(messages("[a](#nothing)").len(), 1);
        assert_eq!(messages("[a](../../x)").len(), 1);
        assert_eq!(messages("[a]: nowhere.md\n").len(), 1);
    }
}
