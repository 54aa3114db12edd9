//! The part of TOML that our `Cargo.toml` files use: tables, and keys with a value on one or more lines.

/// One `key = value` with its table.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// `dependencies`, `workspace.package`, …
    pub table: &'a str,
    /// As written, dots included.
    pub key: &'a str,
    /// As written; for a value over several lines, the first line.
    pub value: &'a str,
    /// From 1.
    pub line: usize,
}

/// Kind of a dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Part of the crate.
    Normal,
    /// For its build script.
    Build,
    /// For its tests, examples and benches.
    Dev,
}

/// One dependency of a manifest.
#[derive(Debug, PartialEq, Eq)]
pub struct Dependency<'a> {
    /// The package, with renaming undone.
    pub package: &'a str,
    /// Its kind.
    pub used: Use,
    /// True if its version comes from the list in the root manifest.
    pub from_workspace: bool,
    /// From 1.
    pub line: usize,
}

/// All entries of a manifest in order.
pub fn entries(text: &str) -> Vec<Entry<'_>> {
    let mut found = Vec::new();
    let (mut table, mut depth) = ("", 0i32);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let inside = depth > 0;
        if !inside && line.starts_with('[') {
            table = line.trim_start_matches('[').split(']').next().unwrap_or_default().trim();
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        depth += line.matches(['[', '{']).count() as i32 - line.matches([']', '}']).count() as i32;
        if let (false, Some((key, value))) = (inside, line.split_once('=')) {
            let key = key.trim().trim_matches('"');
            found.push(Entry { table, key, value: value.trim(), line: number + 1 });
        }
    }
    found
}

/// All dependencies of a manifest, target-specific ones included.
pub fn dependencies(text: &str) -> Vec<Dependency<'_>> {
    let mut found: Vec<Dependency<'_>> = Vec::new();
    for entry in entries(text) {
        let Some((used, own_table)) = dependency_table(entry.table) else { continue };
        let (name, field) = match own_table {
            Some(name) => (name, entry.key),
            None => entry.key.split_once('.').unwrap_or((entry.key, "")),
        };
        let from_workspace = (field == "workspace" && entry.value == "true")
            || (field.is_empty() && entry.value.replace(' ', "").contains("workspace=true"));
        let package = match field {
            "package" => entry.value.trim_matches('"'),
            _ => renamed(entry.value).unwrap_or(name),
        };
        let line = entry.line;
        match found.last_mut().filter(|_| own_table.is_some() && !field.is_empty()) {
            Some(last) if last.package == name && last.used == used => {
                last.from_workspace |= from_workspace;
                last.package = package;
            }
            _ => found.push(Dependency { package, used, from_workspace, line }),
        }
    }
    found
}

/// `dependencies`, `target.'cfg(unix)'.dev-dependencies`, `dependencies.NAME`.
fn dependency_table(table: &str) -> Option<(Use, Option<&str>)> {
    if table.starts_with("workspace.") || table.starts_with("patch.") {
        return None;
    }
    let words = [
        ("dev-dependencies", Use::Dev),
        ("build-dependencies", Use::Build),
        ("dependencies", Use::Normal),
    ];
    words.into_iter().find_map(|(word, used)| {
        let at = table.rfind(word)?;
        let starts = at == 0 || table[..at].ends_with('.');
        match &table[at + word.len()..] {
            "" if starts => Some((used, None)),
            rest if starts => rest.strip_prefix('.').map(|name| (used, Some(name))),
            _ => None,
        }
    })
}

/// The name after `package = "…"` in an inline table.
fn renamed(value: &str) -> Option<&str> {
    let (_, rest) = value.split_once("package")?;
    rest.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_in_every_spelling() {
        let text = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\n\
            b = { workspace = true, features = [\n  \"x = y\",\n] }\nc = \"1\"\n\
            d = { package = \"e\", version = \"1\" }\n\
            [target.'cfg(unix)'.dev-dependencies]\nf = \"1\"\n\
            [build-dependencies.g]\nworkspace = true\noptional = true\n";
        let found = dependencies(text);
        let short: Vec<_> = found.iter().map(|d| (d.package, d.used, d.from_workspace)).collect();
        assert_eq!(
            short,
            [
                ("a", Use::Normal, true),
                ("b", Use::Normal, true),
                ("c", Use::Normal, false),
                ("e", Use::Normal, false),
                ("f", Use::Dev, false),
                ("g", Use::Build, true),
            ]
        );
    }

    #[test]
    fn the_list_of_the_workspace_is_no_dependency() {
        assert!(dependencies("[workspace.dependencies]\na = \"1\"\n").is_empty());
    }

    #[test]
    fn arrays_of_tables_and_comments_do_not_confuse() {
        let text = "# a = 1\n[[bin]]\nname = \"x\"\n[lints]\nworkspace = true\n";
        let keys: Vec<_> = entries(text).into_iter().map(|e| (e.table, e.key)).collect();
        assert_eq!(keys, [("bin", "name"), ("lints", "workspace")]);
    }
}
