//! Checks that `unsafe` is only in the listed modules, and that the compiler enforces it.

use super::edges::crate_roots;
use super::rust_text::{code_only, lines_with_word};
use super::{Tree, Violation};

/// Modules that may contain `unsafe`: `<path>.rs` and everything below `<path>/`.
const FENCES: &[&str] = &[
    "crates/frame/src/arch",
    "crates/table/src/arch",
    "crates/pass/src/judge/arch",
    "crates/machine/src/jit",
    "crates/ring/src",
    "crates/kernel/src",
    "crates/capture/src/sys",
    "crates/privilege/src/sys",
    "crates/lab/src/peers",
    "crates/lab/src/net/sys",
    "bindings",
];

/// Checks crate attributes and every use of the word `unsafe`.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for root in crate_roots(tree) {
        let dense: String =
            code_only(tree.text(root).unwrap_or_default()).split_whitespace().collect();
        let forbids = dense.contains("#![forbid(unsafe_code)]");
        let denies = dense.contains("#![deny(unsafe_code)]");
        if has_fence(root) && !forbids && !denies {
            found.push(Violation::new(root, 0, "needs #![deny(unsafe_code)], outside its fence"));
        }
        if !has_fence(root) && !forbids {
            found.push(Violation::new(root, 0, "needs #![forbid(unsafe_code)]: it has no fence"));
        }
    }
    for (path, text) in tree.ending_in(".rs") {
        let code = code_only(text);
        if !in_fence(path) {
            for line in lines_with_word(&code, "unsafe") {
                found.push(Violation::new(path, line, "`unsafe` outside the fences"));
            }
        }
        let dense: String = code.split_whitespace().collect();
        if ["allow", "expect"].iter().any(|word| dense.contains(&format!("{word}(unsafe_code)"))) {
            let message =
                "an allowance of unsafe code needs a reason: (unsafe_code, reason = \"…\")";
            found.push(Violation::new(path, 0, message));
        }
    }
    found
}

fn in_fence(path: &str) -> bool {
    FENCES.iter().any(|fence| {
        path.strip_prefix(fence).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    })
}

/// True if the crate of this root file has a fence.
fn has_fence(root: &str) -> bool {
    let folder = root.split_once("/src/").map_or(root, |(folder, _)| folder);
    FENCES.iter().any(|fence| {
        fence.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
            || folder.starts_with(fence)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_crate_without_a_fence_must_forbid() {
        let found = messages(&[("crates/filter/src/lib.rs", "//! #![forbid(unsafe_code)]\n")]);
        assert!(found[0].contains("forbid"), "{found:?}");
        let found = messages(&[("crates/filter/src/lib.rs", "#![deny(unsafe_code)]\n")]);
        assert_eq!(found.len(), 1);
        assert!(messages(&[("crates/filter/src/lib.rs", "#![forbid(unsafe_code)]\n")]).is_empty());
    }

    #[test]
    fn a_crate_with_a_fence_must_at_least_deny() {
        assert_eq!(messages(&[("crates/pass/src/lib.rs", "//! x\n")]).len(), 1);
        assert!(messages(&[("crates/pass/src/lib.rs", "#![deny(unsafe_code)]\n")]).is_empty());
    }

    #[test]
    fn the_word_is_found_outside_the_fences_only() {
        let text = "//! x\nfn f() { unsafe { g() } }\n";
        assert_eq!(messages(&[("crates/pass/src/edit.rs", text)]).len(), 1);
        assert_eq!(messages(&[("crates/pass/tests/x.rs", text)]).len(), 1);
        assert_eq!(messages(&[("crates/pass/src/judge/archive.rs", text)]).len(), 1);
        assert!(messages(&[("crates/pass/src/judge/arch.rs", text)]).is_empty());
        assert!(messages(&[("crates/pass/src/judge/arch/avx2.rs", text)]).is_empty());
        assert!(messages(&[("crates/pass/src/edit.rs", "// unsafe\nuse unsafe_code;")]).is_empty());
    }

    #[test]
    fn an_allowance_needs_a_reason() {
        let bare = "#[allow(unsafe_code)]\nmod arch;\n";
        assert_eq!(messages(&[("crates/pass/src/kernel.rs", bare)]).len(), 1);
        let reasoned = "#[allow(unsafe_code, reason = \"intrinsics\")]\nmod arch;\n";
        assert!(messages(&[("crates/pass/src/kernel.rs", reasoned)]).is_empty());
    }
}
