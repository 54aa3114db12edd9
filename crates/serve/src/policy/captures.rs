//! The captures of a service, as its policy file lists them: the interfaces, and the names under which readers find
//! them.

use super::{File, PolicyError, Reading};
use crate::place;
use serde::Deserialize;
use std::path::Path;

/// Most captures of a service.
pub const MAX_CAPTURES: usize = 64;
/// Sizes of a capture ring in KiB.
const BUFFER_KIB: std::ops::RangeInclusive<u64> = 1..=4_194_304;

/// A capture as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    interface: toml::Spanned<String>,
    name: Option<toml::Spanned<String>>,
    promiscuous: Option<bool>,
    buffer_kib: Option<toml::Spanned<i64>>,
}

/// A capture that a service should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    /// The interface.
    pub interface: String,
    /// Name or path of the socket for its readers; that of the interface, if the file has none.
    pub name: String,
    /// False if the interface is not put into promiscuous mode; `None` if the file does not tell.
    pub promiscuous: Option<bool>,
    /// Size of the capture ring in KiB, if the file tells.
    pub buffer_kib: Option<u32>,
}

/// Reads the captures of a policy file; none, if it has only rules.
///
/// # Errors
/// The first problem, with its line.
pub fn captures(file: &Path, text: &str) -> Result<Vec<Capture>, PolicyError> {
    let file = file.display().to_string();
    let names = super::Names::default();
    let reading = Reading { file: &file, text, names: &names };
    let parsed: File = reading.parse()?;
    reading.captures(&parsed.capture)
}

impl Reading<'_> {
    pub(super) fn captures(
        &self,
        entries: &[toml::Spanned<Entry>],
    ) -> Result<Vec<Capture>, PolicyError> {
        if let Some(beyond) = entries.get(MAX_CAPTURES) {
            let problem = format!("there are more than {MAX_CAPTURES} captures");
            return Err(self.error(beyond.span(), problem));
        }
        let mut all = Vec::<Capture>::new();
        for entry in entries {
            let Entry { interface, name, promiscuous, buffer_kib } = entry.get_ref();
            if interface.get_ref().is_empty() {
                return Err(self.error(interface.span(), "the name of the interface is empty"));
            }
            let named = name.as_ref().unwrap_or(interface);
            let (name, at) = (named.get_ref(), named.span());
            place::check_name(name).map_err(|error| self.error(at.clone(), error.to_string()))?;
            if all.iter().any(|one| one.name == *name) {
                let problem = format!("two captures have the name {name:?}; give one another name");
                return Err(self.error(at, problem));
            }
            let buffer = self.number(buffer_kib.as_ref(), "buffer_kib", BUFFER_KIB, 0)?;
            all.push(Capture {
                interface: interface.get_ref().clone(),
                name: name.clone(),
                promiscuous: *promiscuous,
                buffer_kib: u32::try_from(buffer).ok().filter(|kib| *kib > 0),
            });
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Capture>, String> {
        captures(Path::new("s.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn captures_have_names_and_options() {
        let text = "[[capture]]\ninterface = \"eth0\"\n[[capture]]\ninterface = \"eth1\"\n\
                    name = \"inside\"\npromiscuous = false\nbuffer_kib = 65536\n[[rule]]\nusers = [1]\n";
        let capture = |interface: &str, name: &str, promiscuous, buffer_kib| {
            let (interface, name) = (interface.to_owned(), name.to_owned());
            Capture { interface, name, promiscuous, buffer_kib }
        };
        let inside = capture("eth1", "inside", Some(false), Some(65_536));
        assert_eq!(read(text).unwrap(), [capture("eth0", "eth0", None, None), inside]);
        assert_eq!(read("").unwrap(), []);
    }

    #[test]
    fn a_wrong_capture_has_its_line() {
        let one = "[[capture]]\ninterface = \"a\"\n";
        for (text, why) in [
            (format!("{one}{one}"), "s.toml:4: two captures have the name \"a\""),
            (format!("{one}name = \"a b\""), "s.toml:3: \"a b\" is not a name of a service"),
            (format!("{one}buffer_kib = -1"), "s.toml:3: buffer_kib is -1, expected 1 to 4194304"),
            (format!("{one}name = \"/run/a\\nb\""), "s.toml:3: \"/run/a\\nb\" is not a name of"),
            (format!("{one}name = \"/run/\""), "s.toml:3: \"/run/\" is not a name of a service"),
            (format!("{one}buffer_kib = 0"), "s.toml:3: buffer_kib is 0, expected 1 to 4194304"),
            (format!("{one}nam = \"b\""), "s.toml:3: unknown field `nam`"),
            ("[[capture]]\nname = \"a\"".to_owned(), "s.toml:1: missing field `interface`"),
            ("[[capture]]\ninterface = \"\"".to_owned(), "s.toml:2: the name of the interface"),
            (one.repeat(65).replace("\"a\"", "\"x\""), "s.toml:129: there are more than 64"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.starts_with(why), "{why}: {error}");
        }
    }
}
