//! Keys of the authors of edits (Ed25519, RFC 8032), and the list of authors that a sensor trusts.
//!
//! | file | content |
//! |---|---|
//! | private, mode 0600 | `fyke-fleet-private-1 NAME HEX`, the bytes are PKCS #8, version 2 |
//! | trusted authors | lines `NAME HEX`, the 32 bytes of a public key; `#` begins a comment |

use crate::{Name, hex};
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

const PRIVATE: &str = "fyke-fleet-private-1";
/// Most bytes of a file with keys.
const MAX_BYTES: u64 = 1 << 20;
/// Most authors that a sensor trusts.
const MAX_AUTHORS: usize = 1_000;

/// Reason why a file with keys is not taken.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The error of the system.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The error.
        source: io::Error,
    },
    /// Other users can read it.
    #[error("{path}: other users can read this private key (mode {mode:03o}): chmod 600 {path}")]
    Open {
        /// The file.
        path: String,
        /// Its mode.
        mode: u32,
    },
    /// A line is wrong.
    #[error("{path}:{line}: {why}")]
    Line {
        /// The file.
        path: String,
        /// The line, from 1.
        line: usize,
        /// The reason.
        why: String,
    },
}

/// An author's name and private key.
pub struct Author {
    name: Name,
    pair: Ed25519KeyPair,
}

impl std::fmt::Debug for Author {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Author").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Author {
    /// Makes a key and writes it to a new file with mode 0600.
    ///
    /// # Errors
    /// The file exists or cannot be written.
    pub fn create(path: &Path, name: Name) -> Result<Author, KeyError> {
        let failed = |source| KeyError::File { path: path.display().to_string(), source };
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| failed(io::Error::other("the system gives no random numbers")))?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        let line = format!("{PRIVATE} {name} {}\n", hex::of(document.as_ref()));
        file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        Author::read(path)
    }

    /// Reads a private key.
    ///
    /// # Errors
    /// The file cannot be read, others can read it, or it is no private key.
    pub fn read(path: &Path) -> Result<Author, KeyError> {
        let (text, mode) = text(path)?;
        let shown = path.display().to_string();
        if mode & 0o077 != 0 {
            return Err(KeyError::Open { path: shown, mode: mode & 0o777 });
        }
        let wrong = |why: &str| KeyError::Line { path: shown.clone(), line: 1, why: why.into() };
        let words: Vec<&str> = text.split_whitespace().collect();
        let [PRIVATE, name, digits] = words[..] else {
            return Err(wrong("no private key: make one with `fyke fleet key FILE --name NAME`"));
        };
        let name = Name::new(name).map_err(|why| wrong(&why))?;
        let bytes = hex::read(digits).ok_or_else(|| wrong("the key has other characters"))?;
        let pair = Ed25519KeyPair::from_pkcs8(&bytes).map_err(|_| wrong("the key is damaged"))?;
        Ok(Author { name, pair })
    }

    /// The author's name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The line for the file of trusted authors.
    pub fn public_line(&self) -> String {
        format!("{} {}", self.name, hex::of(self.pair.public_key().as_ref()))
    }

    /// The signature of bytes, 64 bytes.
    pub(crate) fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        self.pair.sign(bytes).as_ref().to_vec()
    }
}

/// Authors and their public keys.
#[derive(Debug, Clone, Default)]
pub struct Trusted(BTreeMap<String, Vec<u8>>);

impl Trusted {
    /// Reads a file of trusted authors.
    ///
    /// # Errors
    /// The file cannot be read, a line is wrong, or it has no author.
    pub fn read(path: &Path) -> Result<Trusted, KeyError> {
        let (text, _) = text(path)?;
        Trusted::from_text(&text).map_err(|(line, why)| KeyError::Line {
            path: path.display().to_string(),
            line,
            why,
        })
    }

    /// Reads lines of trusted authors.
    ///
    /// # Errors
    /// The number of a wrong line, from 1, and the reason.
    pub fn from_text(text: &str) -> Result<Trusted, (usize, String)> {
        let mut authors = BTreeMap::new();
        for (line, content) in (1..).zip(text.lines()) {
            let words: Vec<&str> =
                content.split('#').next().unwrap_or_default().split_whitespace().collect();
            let (name, digits) = match words[..] {
                [] => continue,
                [name, digits] => (name, digits),
                _ => return Err((line, "expected NAME and the public key".to_owned())),
            };
            let name = Name::new(name).map_err(|why| (line, why))?;
            let key = hex::read(digits)
                .filter(|bytes| bytes.len() == 32)
                .ok_or((line, "a public key has 64 hexadecimal digits".to_owned()))?;
            if authors.insert(name.as_str().to_owned(), key).is_some() {
                return Err((line, format!("{name} is there twice")));
            }
            if authors.len() > MAX_AUTHORS {
                return Err((line, format!("more than {MAX_AUTHORS} authors")));
            }
        }
        if authors.is_empty() {
            return Err((1, "no author is trusted, so no edit would be accepted".to_owned()));
        }
        Ok(Trusted(authors))
    }

    /// True if this author is trusted, with this key.
    pub fn has(&self, author: &Author) -> bool {
        let key = self.0.get(author.name().as_str());
        key.is_some_and(|key| key == author.pair.public_key().as_ref())
    }

    /// The lines of the authors, in one order whatever the file was.
    pub(crate) fn text(&self) -> String {
        self.0.iter().map(|(name, key)| format!("{name} {}\n", hex::of(key))).collect()
    }

    /// Checks a signature.
    ///
    /// # Errors
    /// The author is not known, or the signature is not the author's.
    pub(crate) fn check(&self, author: &str, bytes: &[u8], signature: &[u8]) -> Result<(), String> {
        let key =
            self.0.get(author).ok_or_else(|| format!("{author:?} is not a trusted author"))?;
        UnparsedPublicKey::new(&ED25519, key)
            .verify(bytes, signature)
            .map_err(|_| format!("the signature is not that of {author}"))
    }
}

/// The text and the mode of a file of limited size.
fn text(path: &Path) -> Result<(String, u32), KeyError> {
    let failed = |source| KeyError::File { path: path.display().to_string(), source };
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode();
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(failed)?;
    Ok((text, mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_valid_for_its_author_and_bytes_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let anna = Author::create(&path, Name::new("anna").unwrap()).unwrap();
        assert!(matches!(Author::create(&path, anna.name.clone()), Err(KeyError::File { .. })));
        let again = Author::read(&path).unwrap();
        assert_eq!(again.public_line(), anna.public_line());
        let eve = Author::create(&folder.path().join("eve"), Name::new("eve").unwrap()).unwrap();
        let trusted = Trusted::from_text(&format!("# ours\n{}\n", anna.public_line())).unwrap();
        assert_eq!(trusted.check("anna", b"one", &again.sign(b"one")), Ok(()));
        let other = Author::create(&folder.path().join("2"), anna.name.clone()).unwrap();
        assert_eq!([&again, &eve, &other].map(|author| trusted.has(author)), [true, false, false]);
        assert!(trusted.check("anna", b"two", &anna.sign(b"one")).is_err());
        assert!(trusted.check("anna", b"one", &eve.sign(b"one")).is_err());
        assert!(trusted.check("eve", b"one", &eve.sign(b"one")).is_err());
        assert!(trusted.check("anna", b"one", b"").is_err());
    }

    #[test]
    fn files_with_wrong_keys_are_refused_with_their_line() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        Author::create(&path, Name::new("anna").unwrap()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Author::read(&path), Err(KeyError::Open { mode: 0o644, .. })));
        let key = "00".repeat(32);
        for (text, line) in [
            ("", 1),
            ("\nanna", 2),
            ("anna 00", 1),
            (&format!("anna {key}\nanna {key}"), 2),
            (&format!("an.na {key}"), 1),
        ] {
            assert_eq!(Trusted::from_text(text).unwrap_err().0, line, "{text}");
        }
    }
}
