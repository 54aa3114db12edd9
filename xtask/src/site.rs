//! `cargo xtask site`: the documents as a site, built by mdBook.
//!
//! `docs/SUMMARY.md` is the table of contents. The pages link to each other as they do in the repository, to pages
//! that the table does not name, to sources and to folders. So the book is built from a copy (`TARGET/site/src`) with
//! the repository's paths: what is linked from a page is copied, linked pages that the table lacks follow at its end,
//! and a folder is a page that lists its files. Afterwards every link of the built pages must lead to a file and, if
//! it has one, to a heading.
//!
//! mdBook is a program, installed by cargo in the set-up for CI (90 s of processor time, once). As a library it would
//! be a dependency of this crate, which has none, so that it can install what is missing in a fresh clone.

mod html;
mod sources;

use crate::setup;
use crate::shell::{Workspace, find_program, shown, status};
use sources::Sources;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

const BOOK: &str = r#"[book]
title = "fyke"
description = "A packet filter and traffic monitor with filters that change while they run"
language = "en"
src = "src"

[build]
build-dir = "html"
create-missing = false

[output.html]
no-section-label = true
default-theme = "light"

[output.html.fold]
enable = true
level = 0
"#;

/// Builds the site and checks its links.
pub fn run(workspace: &Workspace) -> Result<ExitCode, String> {
    let Some(mdbook) = find_program("mdbook") else {
        return setup::skip(
            "no mdbook; to install: cargo install --locked --debug --no-default-features mdbook",
        );
    };
    let folder = workspace.target_dir()?.join("site");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let sources = Sources::collect(&workspace.root, "docs/SUMMARY.md")?;
    sources.copy(&workspace.root, &folder.join("src"))?;
    let book = folder.join("book.toml");
    std::fs::write(&book, BOOK).map_err(|e| format!("{}: {e}", book.display()))?;
    let mut build = Command::new(mdbook);
    build.arg("build").arg(&folder).stdout(std::io::stderr());
    if status(&mut build)? != ExitCode::SUCCESS {
        return Err(format!("`{}` failed", shown(&build)));
    }
    let html = folder.join("html");
    let broken = broken_links(&html)?;
    if !broken.is_empty() {
        return Err(format!(
            "{} links of the site lead nowhere:\n{}",
            broken.len(),
            broken.join("\n")
        ));
    }
    eprintln!("{} pages: {}", sources.pages(), html.join("index.html").display());
    Ok(ExitCode::SUCCESS)
}

/// Links in the built pages that lead to no file or no heading.
fn broken_links(html: &Path) -> Result<Vec<String>, String> {
    let mut pages = BTreeMap::new();
    read_pages(html, "", &mut pages)?;
    let mut broken = Vec::new();
    for (name, text) in &pages {
        // A page of all pages, with links that are relative to it.
        if name == "print.html" {
            continue;
        }
        for link in html::links(text) {
            if let Some(why) = html::broken(name, link, &pages, |path| html.join(path).exists()) {
                broken.push(format!("{name}: {link}: {why}"));
            }
        }
    }
    Ok(broken)
}

fn read_pages(
    root: &Path,
    under: &str,
    pages: &mut BTreeMap<String, String>,
) -> Result<(), String> {
    let folder = root.join(under);
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let name = if under.is_empty() { name } else { format!("{under}/{name}") };
        if entry.path().is_dir() {
            read_pages(root, &name, pages)?;
        } else if name.ends_with(".html") {
            let text = std::fs::read_to_string(entry.path());
            pages.insert(name, text.map_err(|e| format!("{}: {e}", entry.path().display()))?);
        }
    }
    Ok(())
}
