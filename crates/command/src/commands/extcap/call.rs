//! Calls of Wireshark, read from the words of its command line. Options of later versions are ignored.

use std::ffi::OsString;
use std::path::PathBuf;

/// A call.
#[derive(Debug, PartialEq, Eq)]
pub enum Call {
    /// Lists interfaces and controls.
    Interfaces,
    /// Lists the options of an interface.
    Config(String),
    /// Lists the link types of an interface.
    LinkTypes(String),
    /// Checks a filter.
    Check {
        /// The interface that would have it; empty if the call names none.
        interface: String,
        /// The filter.
        filter: String,
    },
    /// Captures until the pipe is closed.
    Capture(Box<Capture>),
}

/// A capture.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// Source of the frames, without the prefix of our interfaces.
    pub interface: String,
    /// The capture filter; empty for none.
    pub filter: String,
    /// The pipe for the frames.
    pub fifo: PathBuf,
    /// The pipe from the toolbar, and the one to it.
    pub controls: Option<(PathBuf, PathBuf)>,
    /// Options for `fyke dump`.
    pub options: Vec<String>,
}

impl Call {
    /// Reads the words.
    ///
    /// # Errors
    /// A word is not UTF-8, or the call lacks a value.
    pub fn read(words: impl Iterator<Item = OsString>) -> Result<Call, String> {
        let mut found = Found::default();
        let mut words = words;
        while let Some(word) = words.next() {
            let word = word.into_string().map_err(|word| format!("{word:?}: not UTF-8"))?;
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(OsString::from(value))),
                None => (word, None),
            };
            found.take(&name, || {
                let value = value.clone().or_else(|| words.next());
                value.ok_or_else(|| format!("{name} needs a value"))
            })?;
        }
        found.call()
    }
}

#[derive(Debug, Default)]
struct Found {
    wanted: Option<&'static str>,
    interface: Option<String>,
    filter: Option<String>,
    /// The relay on another machine.
    server: Option<String>,
    fifo: Option<PathBuf>,
    control_in: Option<PathBuf>,
    control_out: Option<PathBuf>,
    options: Vec<String>,
}

impl Found {
    fn take(
        &mut self,
        name: &str,
        value: impl FnOnce() -> Result<OsString, String>,
    ) -> Result<(), String> {
        let text = |value: OsString| {
            value.into_string().map_err(|value| format!("{name}: {value:?} is not UTF-8"))
        };
        match name {
            "--extcap-interfaces" => self.wanted = Some("interfaces"),
            "--extcap-config" => self.wanted = Some("config"),
            "--extcap-dlts" => self.wanted = Some("dlts"),
            "--capture" => self.wanted = Some("capture"),
            "--extcap-interface" => self.interface = Some(text(value()?)?),
            "--extcap-capture-filter" => self.filter = Some(text(value()?)?),
            "--fifo" => self.fifo = Some(value()?.into()),
            "--extcap-control-in" => self.control_in = Some(value()?.into()),
            "--extcap-control-out" => self.control_out = Some(value()?.into()),
            "--scoped" | "--no-promiscuous" | "--annotate" => self.options.push(name.to_owned()),
            "--server" => self.server = Some(text(value()?)?),
            "--snaplen" | "--tls-ca" | "--tls-cert" | "--tls-key" => {
                self.options.extend([name.to_owned(), text(value()?)?])
            }
            // `--extcap-version=4.0` and options of later versions.
            _ => {}
        }
        Ok(())
    }

    fn call(self) -> Result<Call, String> {
        let interface = || {
            let missing = "--extcap-interface is missing; --extcap-interfaces lists its values";
            self.interface.clone().ok_or_else(|| missing.to_owned())
        };
        match (self.wanted, &self.filter) {
            (Some("interfaces"), _) => Ok(Call::Interfaces),
            (Some("config"), _) => Ok(Call::Config(interface()?)),
            (Some("dlts"), _) => Ok(Call::LinkTypes(interface()?)),
            (None, Some(filter)) => Ok(Call::Check {
                interface: self.interface.clone().unwrap_or_default(),
                filter: filter.clone(),
            }),
            (None, None) => Err("no call of Wireshark: fyke extcap --help".to_owned()),
            (Some(_), _) => {
                let named = interface()?;
                let Some(own) = named.strip_prefix(super::PREFIX) else {
                    let prefix = super::PREFIX;
                    return Err(format!("{named}: the interfaces of fyke begin with {prefix}"));
                };
                let interface = match (own == super::FAR, self.server) {
                    (false, _) => own.to_owned(),
                    (true, Some(server)) => format!("serve:{server}"),
                    (true, None) => {
                        return Err("--server is missing: HOST:PORT of a relay".to_owned());
                    }
                };
                Ok(Call::Capture(Box::new(Capture {
                    interface,
                    filter: self.filter.unwrap_or_default(),
                    fifo: self.fifo.ok_or("--fifo is missing: the pipe for the frames")?,
                    controls: self.control_in.zip(self.control_out),
                    options: self.options,
                })))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<Call, String> {
        Call::read(words.split_whitespace().map(OsString::from))
    }

    #[test]
    fn calls_are_read_in_both_forms_of_a_value() {
        assert_eq!(read("--extcap-interfaces --extcap-version=4.0"), Ok(Call::Interfaces));
        let config = Ok(Call::Config("fyke:eth0".to_owned()));
        assert_eq!(read("--extcap-config --extcap-interface fyke:eth0"), config);
        assert_eq!(read("--extcap-interface=fyke:eth0 --extcap-config"), config);
        assert_eq!(
            read("--extcap-interface x --extcap-capture-filter udp"),
            Ok(Call::Check { interface: "x".to_owned(), filter: "udp".to_owned() })
        );
        let words = "--capture --extcap-interface fyke:any --extcap-capture-filter tcp --fifo /p --later 7 \
                     --extcap-control-in /i --extcap-control-out /o --snaplen 96 --scoped";
        assert_eq!(
            read(words),
            Ok(Call::Capture(Box::new(Capture {
                interface: "any".to_owned(),
                filter: "tcp".to_owned(),
                fifo: "/p".into(),
                controls: Some(("/i".into(), "/o".into())),
                options: ["--snaplen", "96", "--scoped"].map(str::to_owned).to_vec(),
            })))
        );
    }

    #[test]
    fn a_capture_on_another_machine_has_its_relay_and_certificates() {
        let words = "--capture --extcap-interface fyke:/relay --fifo /p --server a:4747/eth0 --tls-ca c --tls-key k";
        let Ok(Call::Capture(capture)) = read(words) else { panic!() };
        assert_eq!(capture.interface, "serve:a:4747/eth0");
        assert_eq!(capture.options, ["--tls-ca", "c", "--tls-key", "k"]);
    }

    #[test]
    fn calls_that_lack_something_name_it() {
        for (words, says) in [
            ("", "no call of Wireshark"),
            ("--extcap-config", "--extcap-interface is missing"),
            ("--extcap-interface", "--extcap-interface needs a value"),
            ("--capture --extcap-interface fyke:lo", "--fifo is missing"),
            ("--capture --extcap-interface eth0 --fifo /p", "begin with fyke:"),
            ("--capture --extcap-interface fyke:/relay --fifo /p", "--server is missing"),
        ] {
            let said = read(words).unwrap_err();
            assert!(said.contains(says), "{words}: {said}");
        }
    }
}
