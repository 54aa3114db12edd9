//! Files of rules.

use crate::compile::Dialect;
use crate::endpoints::Variables;
use crate::read::MAX_FILE_BYTES;
use crate::rule::Rule;
use crate::translate::{Tell, Translation};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// A file of rules cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}")]
pub struct FileError {
    /// The file.
    path: String,
    /// The reason.
    source: io::Error,
}

/// Opens a file of rules; `-` is standard input. A file over [`MAX_FILE_BYTES`] gives an error when it is read.
///
/// # Errors
/// It cannot be opened.
pub fn open(file: &Path) -> io::Result<impl BufRead + use<>> {
    let from: Box<dyn Read> = match file.as_os_str() == "-" {
        true => Box::new(io::stdin().lock()),
        false => Box::new(std::fs::File::open(file)?),
    };
    Ok(bounded(from))
}

/// Reads rules from an open file. One over [`MAX_FILE_BYTES`] gives an error when it is read.
pub fn bounded(from: Box<dyn Read>) -> impl BufRead + use<> {
    BufReader::with_capacity(1 << 16, Bounded { from, left: MAX_FILE_BYTES })
}

/// Reads and translates a file of rules.
///
/// # Errors
/// It cannot be read.
pub fn translation(
    file: &Path,
    dialect: Option<Dialect>,
    variables: &Variables,
    tell: Tell<'_>,
) -> Result<Translation, FileError> {
    let read = open(file).and_then(|from| Translation::read(from, dialect, variables, tell));
    read.map_err(|source| FileError { path: file.display().to_string(), source })
}

/// A file that may not be longer than [`MAX_FILE_BYTES`].
struct Bounded {
    from: Box<dyn Read>,
    left: u64,
}

impl Read for Bounded {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(room)?;
        match self.left.checked_sub(count as u64) {
            Some(left) => self.left = left,
            None => {
                let message = format!("longer than {MAX_FILE_BYTES} bytes; split it");
                return Err(io::Error::other(message));
            }
        }
        Ok(count)
    }
}

/// The rules of several files.
#[derive(Debug, Default)]
pub struct RuleFiles {
    /// Rules that are judged, by group and sid. Of two with the same sid, that with the higher revision is here; of
    /// equal ones, the first.
    pub rules: Vec<Rule>,
    /// Rules of the files.
    pub total: usize,
    /// Rules that are not judged.
    pub refused: usize,
}

impl RuleFiles {
    /// Reads and translates files.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn read(
        files: &[PathBuf],
        dialect: Option<Dialect>,
        variables: &Variables,
        tell: Tell<'_>,
    ) -> Result<RuleFiles, FileError> {
        let mut rules: BTreeMap<(u32, u32), Rule> = BTreeMap::new();
        let mut total = 0;
        for file in files {
            let translation = translation(file, dialect, variables, tell)?;
            total += translation.total();
            for rule in translation.rules {
                let id = (rule.gid, rule.sid);
                if rules.get(&id).is_none_or(|old| old.rev < rule.rev) {
                    rules.insert(id, rule);
                }
            }
        }
        let refused = total - rules.len();
        Ok(RuleFiles { rules: rules.into_values().collect(), total, refused })
    }
}
