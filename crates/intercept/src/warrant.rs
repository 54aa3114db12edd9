//! Warrants, as a file in TOML describes them:
//!
//! ```toml
//! [[warrant]]
//! id = "W-2026-17"                  # becomes part of the name of the file
//! kind = "user"                     # user, mac, client-id, circuit-id, remote-id or address
//! user = "alice@isp.example"
//! from = 2026-11-01T00:00:00Z
//! until = 2026-12-01T00:00:00Z
//! key = "age1…"                     # of those that may read the file
//! ```

use crate::age::Recipient;
use crate::facts::{Name, Place, masked};
use crate::time::nanoseconds;
use std::net::IpAddr;

/// Most warrants.
pub const MOST: usize = 1_024;
/// Most bytes of a file with warrants.
const MOST_BYTES: u64 = 4 << 20;
/// Most bytes of an id.
const ID: usize = 64;

/// The user of a warrant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// A user that messages name.
    Named(Name),
    /// An address that does not change.
    Fixed(Place),
}

/// A warrant.
#[derive(Debug, Clone)]
pub struct Warrant {
    /// Name of the warrant.
    pub id: String,
    pub(crate) subject: Subject,
    /// First nanosecond since 1970 in which it is valid.
    pub from_ns: u64,
    /// First nanosecond in which it is not valid any more.
    pub until_ns: u64,
    /// Those that may read what is captured.
    pub key: Recipient,
}

impl Warrant {
    /// True if it is valid at that time.
    pub fn is_valid(&self, now_ns: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&now_ns)
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    warrant: Vec<Entry>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    kind: String,
    user: String,
    from: toml::value::Datetime,
    until: toml::value::Datetime,
    key: String,
}

/// Reads the warrants of a file, or of all files `*.toml` of a folder.
///
/// # Errors
/// If a file cannot be read, or a warrant is wrong; the message names the file and the warrant.
pub fn read(path: &std::path::Path) -> Result<Vec<Warrant>, String> {
    let failed = |path: &std::path::Path, error: &dyn std::fmt::Display| {
        format!("{}: {error}", path.display())
    };
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        let entries = std::fs::read_dir(path).map_err(|error| failed(path, &error))?;
        let names = entries.map(|entry| entry.map(|entry| entry.path()));
        files = names.collect::<Result<_, _>>().map_err(|error| failed(path, &error))?;
        files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
        files.sort();
    }
    let mut warrants: Vec<Warrant> = Vec::new();
    for file in &files {
        let text = read_text(file, MOST_BYTES).map_err(|error| failed(file, &error))?;
        for warrant in parse(&text).map_err(|error| failed(file, &error))? {
            if warrants.iter().any(|known| known.id == warrant.id) {
                return Err(failed(file, &format!("warrant {}: the id occurs twice", warrant.id)));
            }
            warrants.push(warrant);
        }
    }
    match warrants.len() {
        0 => Err(failed(path, &"there is no warrant: expected [[warrant]]")),
        1..=MOST => Ok(warrants),
        given => Err(failed(path, &format!("{given} warrants, the limit is {MOST}"))),
    }
}

/// The text of a file of limited size.
pub(crate) fn read_text(path: &std::path::Path, most: u64) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let read = std::io::Read::read_to_string(&mut std::io::Read::take(file, most + 1), &mut text);
    match read.map_err(|error| error.to_string())? as u64 > most {
        true => Err(format!("larger than {most} bytes")),
        false => Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)),
    }
}

/// Parses the warrants of a text.
fn parse(text: &str) -> Result<Vec<Warrant>, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let warrants = file.warrant.iter().map(|entry| {
        let warrant = of(entry);
        warrant.map_err(|problem| format!("warrant {:?}: {problem}", entry.id))
    });
    warrants.collect()
}

fn of(entry: &Entry) -> Result<Warrant, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if entry.id.is_empty()
        || entry.id.len() > ID
        || entry.id.starts_with('.')
        || !entry.id.bytes().all(is_plain)
    {
        return Err(format!(
            "id: expected 1 to {ID} letters, digits, `-`, `_` and `.`, and no `.` at its beginning"
        ));
    }
    let (from_ns, until_ns) = (nanoseconds(&entry.from)?, nanoseconds(&entry.until)?);
    if from_ns >= until_ns {
        return Err(format!("until {}: it is not after from {}", entry.until, entry.from));
    }
    let subject = subject(&entry.kind, &entry.user)?;
    let key = Recipient::parse(&entry.key).map_err(|error| format!("key: {error}"))?;
    Ok(Warrant { id: entry.id.clone(), subject, from_ns, until_ns, key })
}

fn subject(kind: &str, user: &str) -> Result<Subject, String> {
    let bytes = || match user.strip_prefix("0x") {
        Some(digits) => unhex(digits).ok_or_else(|| format!("user {user:?}: not hexadecimal")),
        None => Ok(user.as_bytes().to_vec()),
    };
    if user.is_empty() || user.len() > 510 {
        return Err("user: expected 1 to 510 bytes".to_owned());
    }
    Ok(match kind {
        "user" => Subject::Named(Name::User(user.as_bytes().to_vec())),
        "mac" => {
            let bytes = unhex(&user.replace([':', '-'], ""));
            let mac = bytes.and_then(|bytes| bytes.try_into().ok());
            let expected = || format!("user {user:?}: expected 02:00:00:00:00:01");
            Subject::Named(Name::Mac(mac.ok_or_else(expected)?))
        }
        "client-id" => Subject::Named(Name::ClientId(bytes()?)),
        "circuit-id" => Subject::Named(Name::Circuit(bytes()?)),
        "remote-id" => Subject::Named(Name::Remote(bytes()?)),
        "address" => Subject::Fixed(place(user)?),
        _ => {
            return Err(format!(
                "kind {kind:?}: expected user, mac, client-id, circuit-id, remote-id or address"
            ));
        }
    })
}

fn place(text: &str) -> Result<Place, String> {
    let expected = || format!("user {text:?}: expected an address, or a prefix of IPv6");
    let place = match text.split_once('/') {
        Some((address, length)) => {
            let length: u8 = length.parse().map_err(|_| expected())?;
            let address = masked(address.parse().map_err(|_| expected())?, length);
            Place::Prefix(address, length)
        }
        None => Place::Host(text.parse::<IpAddr>().map_err(|_| expected())?),
    };
    match place.is_refused() {
        true => Err(format!(
            "user {text}: that is not the address of one user (prefixes have 40 to 128 bits)"
        )),
        false => Ok(place),
    }
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [_, _] if pair.iter().all(u8::is_ascii_hexdigit) => {
                u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()
            }
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

    fn text(id: &str, kind: &str, user: &str, until: &str, key: &str) -> String {
        format!(
            "[[warrant]]\nid = \"{id}\"\nkind = \"{kind}\"\nuser = \"{user}\"\n\
             from = 2026-01-01T00:00:00Z\nuntil = {until}\nkey = \"{key}\"\n"
        )
    }

    #[test]
    fn a_wrong_warrant_is_refused_with_its_id() {
        let until = "2026-02-01T00:00:00Z";
        for (kind, user) in [
            ("user", "alice"),
            ("mac", "02:00:00:00:00:01"),
            ("client-id", "0x0102"),
            ("address", "192.0.2.1"),
            ("address", "2001:db8::/48"),
        ] {
            assert_eq!(parse(&text("W-1", kind, user, until, KEY)).unwrap().len(), 1, "{user}");
        }
        for (id, kind, user, until, key, problem) in [
            ("../x", "user", "a", until, KEY, "id: expected"),
            (".x", "user", "a", until, KEY, "id: expected"),
            ("x", "name", "a", until, KEY, "kind \"name\": expected"),
            ("x", "mac", "02:00", until, KEY, "expected 02:00:00:00:00:01"),
            ("x", "address", "10.0.0.0/8", until, KEY, "expected an address"),
            ("x", "address", "2001::/16", until, KEY, "40 to 128"),
            ("x", "address", "127.0.0.1", until, KEY, "not the address of one user"),
            ("x", "user", "a", "2025-01-01T00:00:00Z", KEY, "not after from"),
            ("x", "user", "a", "2026-02-01", KEY, "with an offset"),
            ("x", "user", "a", until, "age1x", "key: "),
        ] {
            let refused = parse(&text(id, kind, user, until, key)).unwrap_err();
            assert!(refused.contains(problem) && refused.contains(id), "{refused}");
        }
        assert!(parse("[[warrant]]\nid = 7").unwrap_err().contains("line 2"));
    }
}
