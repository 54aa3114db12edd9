//! Links and anchors in pages of HTML, as far as mdBook writes them.

use std::collections::BTreeMap;

/// The targets of all `href` and `src` attributes.
pub fn links(html: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for attribute in [" href=\"", " src=\""] {
        for (at, _) in html.match_indices(attribute) {
            let rest = &html[at + attribute.len()..];
            found.extend(rest.split('"').next());
        }
    }
    found
}

/// The reason why a link of a page is broken.
pub fn broken(
    page: &str,
    link: &str,
    pages: &BTreeMap<String, String>,
    exists: impl Fn(&str) -> bool,
) -> Option<String> {
    if link.contains("://") || link.starts_with("data:") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => page.to_owned(),
        path => match resolve(page, path) {
            Some(target) => target,
            None => return Some("leads out of the site".to_owned()),
        },
    };
    let listed = format!("{target}/index.html");
    let target = if pages.contains_key(&listed) { listed } else { target };
    let Some(text) = pages.get(&target) else {
        let is_page = target.ends_with(".md");
        return (is_page || !exists(&target)).then(|| format!("no file {target}"));
    };
    let has_anchor = anchor.is_empty() || text.contains(&format!(" id=\"{anchor}\""));
    (!has_anchor).then(|| format!("no heading in {target}"))
}

fn resolve(page: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_and_followed() {
        let page = "<a href=\"../b.html#x\">b</a> <img src=\"p.svg\"> <a href=\"c.md\">";
        assert_eq!(links(page), ["../b.html#x", "c.md", "p.svg"]);
        let pages = BTreeMap::from([
            ("docs/a.html".to_owned(), String::new()),
            ("b.html".to_owned(), "<h2 id=\"x\">".to_owned()),
            ("d/index.html".to_owned(), String::new()),
        ]);
        let why = |link: &str| broken("docs/a.html", link, &pages, |path| path == "docs/p.svg");
        for good in ["../b.html#x", "p.svg", "#", "https://x/y", "../d", "../b.html"] {
            assert_eq!(why(good), None, "{good}");
        }
        assert_eq!(why("../b.html#y").unwrap(), "no heading in b.html");
        assert_eq!(why("c.md").unwrap(), "no file docs/c.md");
        assert_eq!(why("../../b.html").unwrap(), "leads out of the site");
        assert_eq!(why("#y").unwrap(), "no heading in docs/a.html");
    }
}
