//! The committed header declares all functions that the library exports, and equals cbindgen's output if that is
//! installed.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Finds the functions after `before` in the text, with the number of their parameters.
fn functions(text: &str, before: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for (at, _) in text.match_indices(before) {
        let rest = &text[at + before.len()..];
        let Some((name, rest)) = rest.split_once('(') else { continue };
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if !(name.starts_with("fyke_") || name.starts_with("mapi_")) || !name.chars().all(known) {
            continue;
        }
        let parameters = rest.split_once(')').map_or("", |(inside, _)| inside);
        let count = parameters.split(',').filter(|one| !matches!(one.trim(), "" | "void")).count();
        found.insert(name.to_owned(), count);
    }
    found
}

#[test]
fn every_exported_function_is_declared_with_its_parameters() {
    let exported =
        functions(&(text("src/calls.rs") + &text("src/reader_calls.rs")), "extern \"C\" fn ");
    let mut declared = BTreeMap::new();
    let header = text("include/fyke.h");
    for before in [" ", "*"] {
        declared.extend(functions(&header, before));
    }
    // Comments name functions too, without a parameter list.
    declared.retain(|name, _| {
        header.contains(&format!("{name}(struct")) || exported.contains_key(name)
    });
    assert!(exported.len() > 10, "{exported:?}");
    assert_eq!(exported, declared);
}

#[test]
fn the_committed_header_is_the_one_that_cbindgen_writes() {
    let folder = env!("CARGO_MANIFEST_DIR");
    let run = Command::new("cbindgen").current_dir(folder).args(["--quiet", "."]).output();
    match run {
        Err(error) => println!("skipped: cbindgen: {error}"),
        Ok(run) => {
            assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
            assert_eq!(String::from_utf8_lossy(&run.stdout), text("include/fyke.h"));
        }
    }
}

#[test]
fn every_function_of_mapi_is_declared_with_its_parameters() {
    let exported = functions(&text("src/mapi_calls.rs"), "extern \"C\" fn ");
    let header = text("include/mapi.h");
    let after_comment = header.split("extern \"C\" {").nth(1).unwrap();
    let mut declared = BTreeMap::new();
    for line in after_comment.lines().filter(|line| line.ends_with(");")) {
        for before in [" ", "*"] {
            declared.extend(functions(line, before));
        }
    }
    declared.retain(|name, _| after_comment.contains(&format!("{name}(")));
    assert_eq!(exported.len(), 8);
    for (name, parameters) in exported {
        assert_eq!(declared.get(&name), Some(&parameters), "{name}");
    }
}
