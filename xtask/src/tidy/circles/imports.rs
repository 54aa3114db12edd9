//! Imports between the modules of a crate, from a partial parser of Rust's paths.
//!
//! A path that begins with `crate`, `super`, `self` or a module of the folder leads to the module that has the item,
//! through re-exports by `use`. Names that come from elsewhere by `*`, or from another crate, lead to the module that
//! re-exports them. A folder's own file and its parts belong together: edges between them do not count.

use super::super::Tree;
use super::super::rust_text::code_only;
use super::Edges;
use std::collections::{BTreeMap, BTreeSet};

/// Most steps from module to module to resolve a name.
const MAX_STEPS: usize = 16;

/// The modules of a crate.
pub struct Modules {
    list: Vec<Module>,
    by_path: BTreeMap<Vec<String>, usize>,
}

/// One file.
struct Module {
    /// Path from the crate's root; empty for the root.
    path: Vec<String>,
    /// Imported names, with their paths.
    imports: BTreeMap<String, Vec<String>>,
    /// Paths of all used names.
    used: Vec<Vec<String>>,
}

impl Modules {
    /// Reads the modules of a crate, except those for tests.
    pub fn of(tree: &Tree, name: &str) -> Modules {
        let source = format!("crates/{name}/src/");
        let mut list = Vec::new();
        let mut for_tests = BTreeSet::new();
        for (path, text) in tree.ending_in(".rs") {
            let Some(below) = path.strip_prefix(&source) else { continue };
            let Some(path) = module_path(below) else { continue };
            let (tokens, tests) = without_tests(tokens(&code_only(text)));
            for test in tests {
                for_tests.insert([&path[..], &[test]].concat());
            }
            list.push(Module::read(path, &tokens));
        }
        list.retain(|module: &Module| {
            !for_tests.iter().any(|test: &Vec<String>| module.path.starts_with(test))
        });
        // A crate with a library and a program has two roots; neither counts.
        let numbered = list.iter().enumerate();
        let by_path = numbered.map(|(at, module)| (module.path.clone(), at)).collect();
        Modules { list, by_path }
    }

    /// Path of a module from the crate's root.
    pub fn path(&self, module: usize) -> &[String] {
        &self.list[module].path
    }

    /// The path as text.
    pub fn name(&self, module: usize) -> String {
        self.list[module].path.join("::")
    }

    /// Paths of modules that contain modules, including the crate's root.
    pub fn folders(&self) -> BTreeSet<Vec<String>> {
        let above = |module: &Module| {
            (0..module.path.len()).map(|length| module.path[..length].to_vec()).collect::<Vec<_>>()
        };
        self.list.iter().flat_map(above).collect()
    }

    /// Pairs of modules of which the first uses the second, except pairs of a module and one below it.
    pub fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (from, module) in self.list.iter().enumerate() {
            for path in &module.used {
                let Some(to) = self.find(&module.path, path, MAX_STEPS) else { continue };
                let (above, below) = (&module.path, &self.list[to].path);
                if !above.starts_with(below) && !below.starts_with(above) {
                    edges.insert((from, to));
                }
            }
        }
        edges
    }

    /// The module of the item to which a path in module `from` refers; `None` outside of the crate.
    fn find(&self, from: &[String], path: &[String], steps: usize) -> Option<usize> {
        let steps = steps.checked_sub(1)?;
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Vec::new(),
            "self" => from.to_vec(),
            "super" => from.split_last()?.1.to_vec(),
            name => {
                let child = [from, &[name.to_owned()]].concat();
                if !self.is_module(&child) {
                    return None;
                }
                child
            }
        };
        while let Some((name, after)) = rest.split_first() {
            let child = [&at[..], std::slice::from_ref(name)].concat();
            if name == "super" {
                at.pop()?;
            } else if self.is_module(&child) {
                at = child;
            } else {
                let module = self.by_path.get(&at).copied()?;
                let further = self.list[module].imports.get(name).filter(|to| *to != path);
                // A name from another crate leads to the module that re-exports it.
                let found = further.and_then(|to| self.find(&at, &[to, after].concat(), steps));
                return found.or(Some(module));
            }
            rest = after;
        }
        self.by_path.get(&at).copied()
    }

    /// True if there is such a file, or a folder of such files.
    fn is_module(&self, path: &[String]) -> bool {
        let next = self.by_path.range(path.to_vec()..).next();
        next.is_some_and(|(known, _)| known.starts_with(path))
    }
}

/// Path of a file's module; `None` for separate programs.
fn module_path(below: &str) -> Option<Vec<String>> {
    let mut path: Vec<String> = below.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if path[0] == "bin" {
        return None;
    }
    let last = path.last().map(String::as_str);
    if last == Some("mod") || path.len() == 1 && matches!(last, Some("lib" | "main")) {
        path.pop();
    }
    Some(path)
}

/// Words, `::`, and every other character as a token of its own.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut before = ' ';
    for c in code.chars() {
        match tokens.last_mut() {
            Some(last) if word(c) && word(before) => last.push(c),
            Some(last) if c == ':' && before == ':' && last == ":" => last.push(c),
            _ if c.is_whitespace() => {}
            _ => tokens.push(c.to_string()),
        }
        before = c;
    }
    tokens
}

/// The tokens without code for tests, and the names of modules for tests that have files of their own.
fn without_tests(tokens: Vec<String>) -> (Vec<String>, Vec<String>) {
    let (mut kept, mut files) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        let end = attribute_end(&tokens, at);
        let attribute = &tokens[at..end];
        if !(has_words(attribute, &["cfg"]) && has_words(attribute, &["test"])) {
            kept.extend_from_slice(&tokens[at..end.max(at + 1)]);
            at = end.max(at + 1);
            continue;
        }
        at = end;
        while attribute_end(&tokens, at) > at {
            at = attribute_end(&tokens, at);
        }
        let start = at;
        let mut depth = 0;
        while at < tokens.len() {
            depth += usize::from(tokens[at] == "{");
            let closes = tokens[at] == "}";
            at += 1;
            if depth == 0 && tokens[at - 1] == ";" || closes && depth == 1 {
                break;
            }
            depth -= usize::from(closes && depth > 0);
        }
        let item = &tokens[start..at];
        if let Some(name) = item.iter().position(|token| token == "mod").map(|at| at + 1)
            && item.get(name + 1).is_some_and(|token| token == ";")
        {
            files.push(item[name].clone());
        }
    }
    (kept, files)
}

/// The end of the attribute that begins here; `at` if there is none.
fn attribute_end(tokens: &[String], at: usize) -> usize {
    if tokens.get(at).is_none_or(|token| token != "#") {
        return at;
    }
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(at + 1) {
        match token.as_str() {
            "[" => depth += 1,
            "]" if depth == 1 => return index + 1,
            "]" => depth -= 1,
            "!" if index == at + 1 => {}
            _ if depth == 0 => return at,
            _ => {}
        }
    }
    at
}

fn has_words(tokens: &[String], words: &[&str]) -> bool {
    words.iter().all(|word| tokens.iter().any(|token| token == word))
}

impl Module {
    fn read(path: Vec<String>, tokens: &[String]) -> Module {
        let mut module = Module { path, imports: BTreeMap::new(), used: Vec::new() };
        // Modules within the file, by their depth in braces: `super` in them is the file.
        let (mut depth, mut inline) = (0_usize, Vec::new());
        let mut at = 0;
        while at < tokens.len() {
            let before = at.checked_sub(1).map_or("", |at| tokens[at].as_str());
            match tokens[at].as_str() {
                "{" => depth += 1,
                "}" => {
                    depth = depth.saturating_sub(1);
                    inline.retain(|&within| within < depth + 1);
                }
                "mod" if tokens.get(at + 2).is_some_and(|token| token == "{") => {
                    inline.push(depth + 1);
                }
                "use" => {
                    let mut end = at + 1;
                    let mut found = Vec::new();
                    use_tree(tokens, &mut end, &[], &mut found);
                    for (name, path) in found {
                        let path = outside(path, inline.len());
                        module.imports.insert(name, path.clone());
                        module.used.push(path);
                    }
                    at = end;
                    continue;
                }
                _ if is_name(&tokens[at]) && before != "::" && before != "in" => {
                    let mut named = vec![tokens[at].clone()];
                    while tokens.get(at + 1).is_some_and(|token| token == "::")
                        && tokens.get(at + 2).is_some_and(|token| is_name(token))
                    {
                        named.push(tokens[at + 2].clone());
                        at += 2;
                    }
                    if named.len() > 1 {
                        module.used.push(outside(named, inline.len()));
                    }
                }
                _ => {}
            }
            at += 1;
        }
        module
    }
}

/// Converts a path in a module nested `inline` levels inside a file to a path of the file.
fn outside(mut path: Vec<String>, inline: usize) -> Vec<String> {
    for _ in 0..inline {
        if path.first().is_some_and(|name| name == "super") {
            path[0] = "self".to_owned();
            if path.get(1).is_some_and(|name| name == "super") {
                path.remove(0);
            }
        }
    }
    path
}

fn is_name(token: &str) -> bool {
    token.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_')
}

/// Reads a `use` tree to its end: each imported name and its path.
fn use_tree(
    tokens: &[String],
    at: &mut usize,
    prefix: &[String],
    found: &mut Vec<(String, Vec<String>)>,
) {
    let mut path = prefix.to_vec();
    while let Some(token) = tokens.get(*at) {
        *at += 1;
        match token.as_str() {
            "{" => {
                while tokens.get(*at).is_some_and(|token| token != "}") {
                    use_tree(tokens, at, &path, found);
                }
                *at += 1;
                path.clear();
            }
            "as" => {
                let name = tokens.get(*at).cloned().unwrap_or_default();
                *at += 1;
                found.push((name, std::mem::take(&mut path)));
            }
            "," | ";" => break,
            "}" => {
                *at -= 1;
                break;
            }
            "::" => {}
            // The path up to here is the source of the names.
            "*" => found.push(("*".to_owned(), std::mem::take(&mut path))),
            "self" if !path.is_empty() => {}
            name => path.push(name.to_owned()),
        }
    }
    if let Some(last) = path.last().cloned() {
        found.push((last, path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the modules that the first of these files uses.
    fn used(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, &str)> =
            files.iter().map(|(path, text)| (format!("crates/x/src/{path}"), *text)).collect();
        let all: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        let modules = Modules::of(&Tree::of(&all), "x");
        let below = files[0].0.strip_prefix("crates/x/src/").expect("a file of the crate");
        let first = modules.by_path[&module_path(below).expect("a module")];
        let own = modules.edges().into_iter().filter(|(from, _)| *from == first);
        own.map(|(_, to)| modules.name(to)).collect()
    }

    #[test]
    fn imports_and_paths_lead_to_modules() {
        let text =
            "use crate::{b::{self, Thing}, c::deep::Other as New};\nfn f() { super::d::g() }";
        let others = [("b.rs", ""), ("c/mod.rs", ""), ("c/deep.rs", ""), ("d.rs", "")];
        let files = [&[("a.rs", text)][..], &others].concat();
        assert_eq!(used(&files), ["b", "c::deep", "d"]);
    }

    #[test]
    fn what_is_passed_on_leads_to_who_has_it() {
        let lib = "pub use room::Thing;";
        let room = "mod inner; pub use inner::Thing; pub struct Own;";
        let files = |text| {
            [("a.rs", text), ("lib.rs", lib), ("room.rs", room), ("room/inner.rs", "struct Thing;")]
        };
        assert_eq!(used(&files("use crate::Thing;")), ["room::inner"]);
        assert_eq!(used(&files("use crate::room::{Own, Thing};")), ["room", "room::inner"]);
        assert_eq!(used(&files("use crate::room::*;")), ["room"]);
    }

    #[test]
    fn a_folder_and_its_parts_belong_together() {
        let files = [("a.rs", "mod part; fn f() { part::g() } struct S;"), ("a/part.rs", "")];
        assert!(used(&files).is_empty());
        let part = "use super::{S, other::T}; use crate::b::X;";
        let files = [("a/part.rs", part), ("a.rs", "struct S;"), ("a/other.rs", ""), ("b.rs", "")];
        assert_eq!(used(&files), ["a::other", "b"]);
    }

    #[test]
    fn tests_comments_and_other_crates_do_not_count() {
        let text = "//! See crate::b::C.\nuse std::b::C; pub(in crate::b) fn f() {}\n\
                    #[cfg(test)]\n#[allow(x)]\nmod tests { use crate::b::C; fn g() { if x {} } }\n\
                    #[cfg(test)]\nuse crate::b::D;\n#[cfg(test)]\nmod more;\n";
        let files = [("a.rs", text), ("b.rs", ""), ("a/more.rs", "use crate::b::C;")];
        assert!(used(&files).is_empty());
        let files = [("b.rs", "use crate::a::C;"), ("a.rs", text), ("a/more.rs", "")];
        assert_eq!(used(&files), ["a"]);
    }

    #[test]
    fn super_in_a_module_inside_a_file_is_the_file() {
        let text = "mod inside { use super::X; use super::super::b::Y; } use super::c::Z;";
        assert_eq!(used(&[("a.rs", text), ("b.rs", ""), ("c.rs", "")]), ["b", "c"]);
    }

    #[test]
    fn unfinished_text_and_names_that_lead_round_end() {
        for text in ["use", "use a::{", "use a as", "#[cfg(test)", "mod x {", "#"] {
            let _nothing = used(&[("a.rs", text)]);
        }
        let files = [("a.rs", "use crate::b::X;"), ("b.rs", "pub use crate::a::X;")];
        assert!(used(&files).len() <= 1);
    }
}
