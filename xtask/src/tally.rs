//! Reads the output of `cargo test -- --show-output` and adds up the results of all test programs.
//!
//! libtest shows the output of passing tests in a `successes:` section per program. That section is
//! the only place where a passing test can report a skip, and it is long, so this reader keeps its
//! `skipped:` lines and drops the rest. Every other line passes unchanged.
//!
//! A test that printed `skipped:` is counted as skipped, not as passed; libtest's `ignored` ones
//! are skipped too. So passed + failed + skipped is the number of tests.

/// The sums, and the state of the reader.
#[derive(Debug, Default)]
pub struct Tally {
    /// Tests that ran to the end and passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that printed `skipped:`, and ignored ones.
    pub skipped: u64,
    /// Their lines.
    pub skips: Vec<String>,
    /// Names of the failed tests.
    pub failures: Vec<String>,
    section: Section,
    /// Name of the current test, and true if it has printed `skipped:`.
    shown_test: String,
    shown_test_skipped: bool,
    /// Skipped tests of the current program that libtest will count as passed.
    skipped_as_passed: u64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Section {
    #[default]
    Plain,
    Successes,
    Failures,
}

impl Tally {
    /// Takes one line without its line end; returns the line to print, if any.
    pub fn line(&mut self, line: &str) -> Option<String> {
        if let Some(counts) = parse_result(line) {
            self.finish_program(counts);
            return Some(line.to_owned());
        }
        match (self.section, line) {
            (_, "failures:") => {
                self.section = Section::Failures;
                Some(line.to_owned())
            }
            (Section::Plain, "successes:") => {
                self.section = Section::Successes;
                None
            }
            (Section::Successes, _) => self.success_line(line),
            (Section::Plain, _) if line.starts_with("skipped:") => {
                // A test program without libtest: one line is one skip, which is counted nowhere
                // else.
                self.skipped += 1;
                self.skips.push(line.to_owned());
                Some(line.to_owned())
            }
            _ => {
                let failed = line.strip_prefix("test ").and_then(|l| l.strip_suffix(" ... FAILED"));
                self.failures.extend(failed.map(str::to_owned));
                Some(line.to_owned())
            }
        }
    }

    /// The closing line.
    pub fn summary(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }

    fn success_line(&mut self, line: &str) -> Option<String> {
        let header = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(name) = header {
            self.shown_test = name.to_owned();
            self.shown_test_skipped = false;
            return None;
        }
        if !line.starts_with("skipped:") {
            return None;
        }
        if !self.shown_test_skipped {
            self.shown_test_skipped = true;
            self.skipped_as_passed += 1;
        }
        let shown = format!("{line} ({})", self.shown_test);
        self.skips.push(shown.clone());
        Some(shown)
    }

    fn finish_program(&mut self, counts: Counts) {
        let skipped = self.skipped_as_passed.min(counts.passed);
        self.passed += counts.passed - skipped;
        self.failed += counts.failed;
        self.skipped += skipped + counts.ignored;
        self.section = Section::Plain;
        self.skipped_as_passed = 0;
    }
}

struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; …`
fn parse_result(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("test result: ")?;
    let (_, rest) = rest.split_once(". ")?;
    let count = |name: &str| {
        let mut parts = rest.split("; ");
        parts.find_map(|part| part.strip_suffix(name)?.trim().parse().ok())
    };
    Some(Counts { passed: count("passed")?, failed: count("failed")?, ignored: count("ignored")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Tally, Vec<String>) {
        let mut tally = Tally::default();
        let shown = text.lines().filter_map(|line| tally.line(line)).collect();
        (tally, shown)
    }

    #[test]
    fn sums_over_programs() {
        let (tally, shown) = read(
            "running 2 tests\ntest a ... ok\ntest b ... ok\n\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; 0.00s\n\
             running 3 tests\ntest c ... FAILED\n\
             test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; 0s",
        );
        assert_eq!(tally.summary(), "3 passed, 1 failed, 1 skipped");
        assert_eq!(tally.failures, ["c"]);
        assert_eq!(shown.len(), 8);
    }

    #[test]
    fn a_test_that_skips_is_not_a_pass_however_often_it_says_so() {
        let (tally, shown) = read(
            "successes:\n\n---- net::veth stdout ----\nsome noise\nskipped: needs root\n\
             skipped: needs veth\n\n---- other stdout ----\nnoise\n\nsuccesses:\n    net::veth\n\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; 0.00s",
        );
        assert_eq!(tally.summary(), "1 passed, 0 failed, 1 skipped");
        assert_eq!(tally.skips.len(), 2);
        assert_eq!(shown[0], "skipped: needs root (net::veth)");
        assert_eq!(shown.len(), 3, "{shown:?}");
    }

    #[test]
    fn a_failed_test_that_printed_a_skip_stays_failed_and_its_output_is_kept() {
        let (tally, shown) = read(
            "successes:\n    quiet\n\nfailures:\n\n---- x stdout ----\nskipped: half\npanic\n\n\
             failures:\n    x\n\n\
             test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; 0s",
        );
        assert_eq!(tally.summary(), "1 passed, 1 failed, 0 skipped");
        assert!(shown.iter().any(|line| line == "panic"));
    }

    #[test]
    fn a_program_without_libtest_counts_by_its_lines() {
        let (tally, _) = read("skipped: no such kernel\nall done");
        assert_eq!(tally.summary(), "0 passed, 0 failed, 1 skipped");
    }
}
