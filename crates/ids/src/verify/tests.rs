//! For each option a match, and near-misses that break one condition.

use crate::rule::Rule;
use crate::verify::{Checks, Variables, Verdict};
use crate::work::{MAX_WORK, Work};
use crate::{Translation, Variables as Names};

fn rule(options: &str) -> Rule {
    let text = format!("alert udp any any -> any any ({options} sid:1;)");
    let translation = Translation::new(text.as_bytes(), None, &Names::default());
    let reason = translation.refused.first().map(ToString::to_string).unwrap_or_default();
    translation.rules.into_iter().next().unwrap_or_else(|| panic!("{options}: {reason}"))
}

fn judge(options: &str, bytes: &[u8]) -> Verdict {
    let rule = rule(options);
    let (mut variables, mut work) = (Variables::default(), Work::default());
    let checks = Checks::new(&rule.lists[0], rule.variables > 0);
    let verdict = checks.judge(bytes, &mut variables, &mut work);
    // The last part may be larger than what is left.
    assert!(work.used() <= MAX_WORK + bytes.len() as u64, "{options}: {work:?}");
    verdict
}

/// Options, bytes that match, bytes that do not.
const CASES: &[(&str, &[&str], &[&str])] = &[
    ("content:\"abc\";", &["abc", "xxabcxx"], &["ab", "aBc", ""]),
    ("content:\"aBc\"; nocase;", &["abc", "xABC"], &["ab"]),
    ("content:\"ab\"; offset:1;", &["xab", "abab"], &["abx"]),
    ("content:\"ab\"; depth:3;", &["ab", "xab"], &["xxab"]),
    ("content:\"ab\"; offset:1; depth:3;", &["xab", "xxab"], &["ab", "xxxab"]),
    ("content:\"a\"; content:\"b\"; distance:1;", &["axb", "a--b"], &["ab", "ba"]),
    ("content:\"a\"; content:\"b\"; within:2;", &["ab", "axb", "aab"], &["axxb", "ba"]),
    ("content:\"a\"; content:\"b\"; distance:1; within:2;", &["axb", "axxb"], &["ab", "axxxb"]),
    ("content:\"b\"; content:\"a\"; distance:-2;", &["xab"], &["axb"]),
    (
        "content:\"a\"; content:\"b\"; distance:0; content:\"c\"; distance:0; within:1;",
        &["axbxbc"],
        &["abxc"],
    ),
    ("content:\"ab\"; startswith;", &["ab", "abx"], &["xab"]),
    ("content:\"ab\"; endswith;", &["ab", "abxab"], &["abx"]),
    ("content:\"x\"; content:\"ab\"; distance:0; endswith;", &["xab"], &["abx", "abxb"]),
    ("content:\"a\"; content:!\"b\";", &["a"], &["ab", "ba"]),
    ("content:\"a\"; content:!\"b\"; distance:0; within:2;", &["axxb", "ba"], &["axb"]),
    ("content:\"a\"; content:!\"b\"; within:1;", &["ac", "a", "abac"], &["ab"]),
    ("content:\"a\"; isdataat:2,relative;", &["abc"], &["ab"]),
    ("content:\"a\"; isdataat:!1,relative;", &["ba"], &["ab"]),
    ("content:\"a\"; isdataat:3;", &["abcd"], &["abc"]),
    ("content:\"a\"; isdataat:!3;", &["abc"], &["abcd"]),
    ("content:\"a\"; isdataat:!1,relative; nocase;", &["bA", "Aba"], &["Ab"]),
    ("pcre:\"/a\\d+$/\";", &["xa12"], &["a", "a1x"]),
    (
        "content:\"a\"; pcre:\"/^b+/R\"; content:\"c\"; distance:0; within:1;",
        &["abbc", "axabc"],
        &["axbc", "abbxc"],
    ),
    ("pcre:!\"/ab/\"; content:\"a\";", &["a"], &["ab", "b"]),
    ("byte_test:1,>,64,1;", &["xA"], &["x@", "x"]),
    ("byte_test:2,=,0x4142,0;", &["AB"], &["BA", "A"]),
    ("byte_test:2,=,0x4142,0,little;", &["BA"], &["AB"]),
    ("content:\"n=\"; byte_test:3,>=,100,0,relative,string,dec;", &["n=100"], &["n=099", "n=10"]),
    ("byte_test:0,<,1000,0,string,dec;", &["999", "7x"], &["1000", "x"]),
    ("byte_test:1,&,2,0;", &["B"], &["A"]),
    ("byte_test:1,!&,2,0;", &["A"], &["B", ""]),
    (
        "byte_jump:1,0; content:\"Z\"; distance:0; within:1;",
        &["\x02abZ"],
        &["\x02aZb", "\x09Z", "\x01abZ"],
    ),
    ("byte_jump:1,0,from_beginning; content:\"Z\"; within:1;", &["\x02aZ"], &["\x01aZ"]),
    ("byte_jump:1,0,multiplier 2; content:\"Z\"; within:1;", &["\x01abZ"], &["\x02abZ"]),
    ("byte_jump:1,0,align; content:\"Z\"; within:1;", &["\x01abcdZ"], &["\x01aZbcd"]),
    ("byte_jump:1,0,post_offset 1; content:\"Z\"; within:1;", &["\x01abZ"], &["\x01aZ"]),
    ("byte_extract:1,0,n; content:\"Z\"; offset:n; depth:1;", &["\x02aZ"], &["\x01aZ"]),
    ("byte_extract:1,0,n; byte_test:1,=,n,1;", &["AA"], &["AB"]),
    (
        "byte_math:bytes 1, offset 0, oper +, rvalue 1, result n; byte_test:1,=,n,1;",
        &["AB"],
        &["AA"],
    ),
    (
        "content:\"x=\"; base64_decode:offset 0,relative; base64_data; content:\"hello\"; startswith;",
        &["x=aGVsbG8gd29ybGQ="],
        &["x=aGVsbA==", "x=!!"],
    ),
];

#[test]
fn options_match_and_miss_by_one_condition() {
    for (options, matches, misses) in CASES {
        for bytes in *matches {
            assert_eq!(judge(options, bytes.as_bytes()), Verdict::Match, "{options} on {bytes:?}");
        }
        for bytes in *misses {
            assert_eq!(
                judge(options, bytes.as_bytes()),
                Verdict::Nothing,
                "{options} on {bytes:?}"
            );
        }
    }
}

#[test]
fn a_rule_that_explodes_ends_at_the_limit() {
    let options = "content:\"a\"; ".to_owned()
        + &"content:\"a\"; distance:0; ".repeat(12)
        + "content:\"b\"; distance:0;";
    assert_eq!(judge(&options, "a".repeat(300).as_bytes()), Verdict::Limit);
    assert_eq!(judge(&options, ("a".repeat(300) + "b").as_bytes()), Verdict::Match);
}

#[test]
fn the_limit_is_for_all_searches_of_a_verification() {
    let (letters, almost) = ("a".repeat(60_000), "a".repeat(4000) + "b");
    for options in [
        // Each place of a content begins another search.
        "content:\"a\"; pcre:\"/(?:a|aa)+(?=b)/R\";".to_owned(),
        "pcre:\"/a/\"; pcre:\"/^a{1,500}b/R\"; content:\"c\"; distance:0;".to_owned(),
        format!("content:\"{almost}\"; nocase;"),
        format!("content:!\"{almost}\"; nocase;"),
        "content:\"a\"; base64_decode:relative; base64_data; content:\"b\";".to_owned(),
    ] {
        assert_eq!(judge(&options, letters.as_bytes()), Verdict::Limit, "{options:.60}");
    }
}

#[test]
fn numbers_at_wrong_places_are_no_match() {
    for options in [
        "byte_test:4,=,0,65000;",
        "byte_test:4,=,0,-4;",
        "byte_jump:4,0,multiplier 65535; content:\"a\"; distance:-65535;",
        "byte_extract:8,0,n; isdataat:n,relative;",
        "byte_extract:8,0,n; content:\"a\"; offset:n; depth:n;",
        "byte_math:bytes 8, offset 0, oper *, rvalue 4294967295, result n; byte_jump:1,n;",
        "byte_math:bytes 1, offset 0, oper -, rvalue 255, result n; \
            byte_math:bytes 1, offset 0, oper /, rvalue n, result m; byte_test:1,=,m,n;",
        "byte_math:bytes 1, offset 0, oper <<, rvalue 200, result n; byte_test:1,=,n,0;",
    ] {
        for bytes in [&[0xff; 16][..], &[0; 3], &[]] {
            assert_ne!(judge(options, bytes), Verdict::Limit, "{options}");
        }
    }
}
