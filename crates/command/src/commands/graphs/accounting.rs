//! The graph of `fyke account`: `source > demux > account`. The demultiplexer gives each frame the class values of all
//! filters and classes that accept it, and 0 to all frames; the node `account` counts them.

use super::super::Failure;
use super::{DEMUX, check_source, cut, limit, node, path, pcapin, plain_source, yes};
use crate::cli::AccountArgs;
use anyhow::Context;
use fyke_account::class::check_name;
use fyke_account::classes::{self, BUILT_IN, ClassLine, Members};
use fyke_account::tallies::OTHER;
use std::collections::HashSet;
use std::fmt;
use std::path::Path;

/// Name of the counting node.
pub const ACCOUNT: &str = "account";
/// Text that accepts every frame, of any link type.
const EVERY_FRAME: &str = "greater 0";
/// Milliseconds of an interval of a live capture, if none are given.
const LIVE_EVERY_MS: u128 = 10_000;

/// A filter of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountFilter {
    /// Class value of its frames.
    pub value: u32,
    /// Its name.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl fmt::Display for AccountFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.text)
    }
}

/// The filters and classes of an account.
#[derive(Debug, Clone)]
pub struct Accounted {
    /// Filters in their order.
    pub filters: Vec<AccountFilter>,
    /// Classes in their order, with class values from 1.
    classes: Vec<ClassLine>,
    /// The next class value.
    next: u32,
}

impl Accounted {
    /// Reads the filters and classes of a command line.
    ///
    /// # Errors
    /// If one cannot be read, or a name is there twice.
    pub fn new(args: &AccountArgs) -> Result<Accounted, Failure> {
        let classes = match &args.classes {
            None => Vec::new(),
            Some(None) => class_lines(BUILT_IN, "the built-in classes")?,
            Some(Some(file)) => {
                class_lines(&read(file)?, &format!("--classes {}", file.display()))?
            }
        };
        let next = classes.len() as u32 + 1;
        let mut accounted = Accounted { filters: Vec::new(), classes, next };
        for text in &args.filters {
            let wrong = |why: String| Failure::Usage(format!("--filter {text}: {why}"));
            let (name, expression) = filter_of(text).map_err(wrong)?;
            accounted.push(name, expression);
        }
        if let Some(file) = &args.filter_file {
            let from = format!("-F {}", file.display());
            for line in class_lines(&read(file)?, &from)? {
                match line.members {
                    Members::Filter(text) => accounted.push(&line.name, &text),
                    Members::Follow(_) => {
                        let message = format!("{from}: `follow` is for classes (--classes)");
                        return Err(Failure::Usage(message));
                    }
                }
            }
        }
        accounted.check().map_err(|why| Failure::Usage(format!("--filter: {why}")))?;
        Ok(accounted)
    }

    /// Adds a filter.
    pub fn push(&mut self, name: &str, text: &str) {
        let (name, text) = (name.to_owned(), text.to_owned());
        self.filters.push(AccountFilter { value: self.next, name, text });
        self.next += 1;
    }

    /// Checks that each name is there once.
    ///
    /// # Errors
    /// The name that is not.
    pub fn check(&self) -> Result<(), String> {
        let mut names = HashSet::new();
        match self.filters.iter().find(|filter| !names.insert(&filter.name)) {
            Some(filter) => Err(format!("the name `{}` is there twice", filter.name)),
            None => Ok(()),
        }
    }
}

/// Splits `NAME=EXPR`.
///
/// # Errors
/// If it is something else.
pub fn filter_of(text: &str) -> Result<(&str, &str), String> {
    let Some((name, expression)) = text.split_once('=') else {
        return Err(format!("`{text}`: expected 'NAME=EXPR'"));
    };
    let (name, expression) = (name.trim(), expression.trim());
    check_name(name)?;
    match expression {
        _ if name == OTHER => Err(format!(
            "`{OTHER}` is the name of the frames that no filter accepts; choose another name"
        )),
        "" => Err(format!("`{name}=`: an expression is missing")),
        _ => Ok((name, expression)),
    }
}

fn class_lines(text: &str, from: &str) -> Result<Vec<ClassLine>, Failure> {
    classes::parse(text).map_err(|why| Failure::Usage(format!("{from}: {why}")))
}

fn read(file: &Path) -> Result<String, Failure> {
    let text = match file.as_os_str() == "-" {
        true => super::super::read_limited(std::io::stdin().lock()),
        false => super::super::read_text(file),
    };
    Ok(text.with_context(|| format!("cannot read {}", file.display()))?)
}

/// Builds the graph of `fyke account`.
///
/// # Errors
/// If options contradict each other.
pub fn account(args: &AccountArgs, of: &Accounted) -> Result<String, Failure> {
    let live = args.source.read.is_none();
    let mut chain = vec![match &args.source.read {
        Some(files) => {
            check_source(&args.source)?;
            pcapin(files, true)?
        }
        None => plain_source(&args.source, false)?,
    }];
    chain.extend(args.limit.map(limit));
    let mut texts = vec![format!("{EVERY_FRAME} => 0")];
    let mut given = Vec::new();
    for (value, ClassLine { name, members }) in (1u32..).zip(&of.classes) {
        match members {
            Members::Filter(text) => {
                texts.push(format!("{text} => {value}"));
                given.push(("class", Some(format!("{value} {name}"))));
            }
            Members::Follow(protocols) => {
                given.push(("class", Some(format!("{value} {name} {protocols}"))));
            }
        }
    }
    for filter in &of.filters {
        texts.push(format!("{} => {}", filter.text, filter.value));
        given.push(("filter", Some(format!("{} {}", filter.value, filter.name))));
    }
    let mut parameters: Vec<_> = texts.into_iter().map(|text| ("expression", Some(text))).collect();
    parameters.extend([
        ("scoped", yes(args.scoped)),
        ("live", yes(live)),
        ("snaplen", cut(args.source.snaplen)),
    ]);
    chain.push(format!("{{{DEMUX}}}{}", node(DEMUX, &parameters)));
    let every_ms = args.every.map(|every| every.as_millis()).or(live.then_some(LIVE_EVERY_MS));
    let format = match (args.format, &args.write) {
        (Some(format), _) => Some(format.word()),
        (None, None) => Some("table"),
        // Not by the name: tables are for no `-w`.
        (None, Some(file)) => (file.as_os_str() == "-").then_some("csv"),
    };
    let target = args.write.as_deref().map(path).transpose()?.flatten();
    given.extend([
        ("expression", target),
        ("format", format.map(str::to_owned)),
        ("every", every_ms.map(|every| every.to_string())),
        ("live", yes(live)),
        ("nonzero", yes(args.nonzero)),
        ("domain", args.domain.map(|domain| domain.to_string())),
    ]);
    chain.push(format!("{{{ACCOUNT}}}{}", node(ACCOUNT, &given)));
    Ok(chain.join(" > "))
}
