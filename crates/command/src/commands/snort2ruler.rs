//! `fyke snort2ruler`: translates rules of Snort and Suricata, and reports those that cannot be judged exactly.
//!
//! The report goes to standard output, or to standard error if the translated rules go there.

use super::{Failure, one_line, output};
use crate::cli::{Language, ReportForm, RuleArgs, Snort2rulerArgs};
use anyhow::Context;
use fyke_ids::engine::Armed;
use fyke_ids::{Dialect, Step, Translation, Variables, files};
use std::io::{BufWriter, IsTerminal, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Runs the command.
pub fn run(args: Snort2rulerArgs) -> Result<(), Failure> {
    let is_standard = |path: &Path| path.as_os_str() == "-";
    if !is_standard(&args.file)
        && let Some(out) = &args.output
        && std::fs::canonicalize(out)
            .ok()
            .is_some_and(|out| std::fs::canonicalize(&args.file).ok() == Some(out))
    {
        return Err(Failure::Usage(format!(
            "-o {}: the rules are read from this file",
            out.display()
        )));
    }
    let variables = variables(&args.rules)?;
    let mut progress = Progress::new();
    let translation =
        files::translation(&args.file, dialect(&args.rules), &variables, &mut |step| {
            progress.tell(step)
        })?;
    drop(progress);
    let mut out: Box<dyn Write> = Box::new(output());
    if let Some(path) = &args.output {
        if is_standard(path) {
            out = Box::new(std::io::stderr());
            write_rules(&translation, BufWriter::new(output()))?;
        } else {
            let file = std::fs::File::create(path)
                .with_context(|| format!("cannot create {}", path.display()))?;
            let written = write_rules(&translation, BufWriter::new(file));
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    match args.report.unwrap_or(ReportForm::Text) {
        ReportForm::Json => writeln!(out, "{}", report(&translation))?,
        ReportForm::Text => {
            for refused in &translation.refused {
                writeln!(out, "{}", one_line(&refused.to_string()))?;
            }
            if translation.refused_more > 0 {
                writeln!(out, "and {} other refused rules", translation.refused_more)?;
            }
            let (all, translated) = (translation.total(), translation.rules.len());
            writeln!(
                out,
                "{all} rules, {translated} translated, {} refused",
                translation.refused_count()
            )?;
        }
    }
    out.flush()?;
    match translation.rules.is_empty() {
        true => Err(Failure::Usage(format!(
            "{}: none of {} rules is translated",
            args.file.display(),
            translation.total()
        ))),
        false => Ok(()),
    }
}

/// A line on a terminal about rules that are being translated, after a moment; it is removed at the end.
pub struct Progress {
    next: Instant,
    is_shown: bool,
}

impl Progress {
    const EVERY: Duration = Duration::from_millis(500);

    /// A line that is not shown yet.
    pub fn new() -> Progress {
        Progress { next: Instant::now() + Self::EVERY, is_shown: false }
    }

    /// Shows how far it is.
    pub fn tell(&mut self, step: Step) {
        if Instant::now() < self.next || !std::io::stderr().is_terminal() {
            return;
        }
        self.next += Self::EVERY;
        self.is_shown = true;
        let text = match step {
            Step::Read(read) => format!("{read} rules read"),
            Step::Translated(done, all) => format!("{done} of {all} rules translated"),
        };
        // A progress line that cannot be written is no failure.
        let _ = write!(std::io::stderr(), "\r\x1b[Kfyke: {text}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// Reads a file of rules, or standard input.
pub fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let read = files::open(file).and_then(|mut from| from.read_to_end(&mut text));
    read.with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text)
}

/// Returns the variables of the arguments.
pub fn variables(args: &RuleArgs) -> Result<Variables, Failure> {
    let mut variables = Variables::default();
    for text in &args.variables {
        variables.set(text).map_err(|error| Failure::Usage(format!("--set {error}")))?;
    }
    Ok(variables)
}

/// Returns the language of the arguments.
pub fn dialect(args: &RuleArgs) -> Option<Dialect> {
    args.language.map(|language| match language {
        Language::Suricata => Dialect::Suricata,
        Language::Snort2 => Dialect::Snort2,
        Language::Snort3 => Dialect::Snort3,
    })
}

fn report(translation: &Translation) -> String {
    let refused = translation.refused.iter().map(|refused| {
        serde_json::json!({ "sid": refused.sid, "line": refused.line, "reason": refused.reason })
    });
    // In the order in which the fields are documented.
    format!(
        "{{\"rules\":{},\"translated\":{},\"refused\":{}{}}}",
        translation.total(),
        translation.rules.len(),
        serde_json::Value::Array(refused.collect()),
        match translation.refused_more {
            0 => String::new(),
            more => format!(",\"refused_more\":{more}"),
        }
    )
}

/// Writes the translated rules.
fn write_rules(translation: &Translation, mut out: impl Write) -> std::io::Result<()> {
    for rule in &translation.rules {
        writeln!(out, "# found by {}", Armed::new(rule.clone()).found_by())?;
        writeln!(out, "{}", rule.text)?;
    }
    out.flush()
}
