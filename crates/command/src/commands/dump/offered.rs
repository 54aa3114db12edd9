//! Lists of what an interface offers: link types and time stamp types; and the list of the interfaces.

use super::super::{Failure, interface, xdp};
use crate::cli::SourceArgs;
use fyke_frame::LinkType;
use std::io::Write;

/// The link types that an interface offers; on Linux it is one, and two for `any`.
pub struct Offered {
    interface: String,
    links: Vec<LinkType>,
    link: LinkType,
    netmask: u32,
}

impl Offered {
    /// Looks up the interface in the arguments.
    pub fn of(args: &SourceArgs) -> Result<Offered, Failure> {
        if args.read.is_some() {
            return Err(Failure::Usage(
                "-y and -L are for interfaces; a file has its own link types, so omit these options \
                 (fyke explain --link NAME shows how a filter is read for another link type)"
                    .to_owned(),
            ));
        }
        let interface = interface(args)?;
        let at_driver = xdp::parse(&interface).transpose();
        let at_driver =
            at_driver.map_err(|why| Failure::Usage(format!("-i {interface}: {why}")))?;
        let name = at_driver.map_or(interface.as_str(), |(name, _)| name).to_owned();
        let available = fyke_capture::interfaces_available()?;
        match available.into_iter().find(|one| one.name == name) {
            Some(found) => {
                let (link, netmask) = (found.link, found.netmask);
                // Other interfaces are refused when they are opened at the driver.
                let links = match at_driver {
                    Some(_) => vec![LinkType::EN10MB],
                    None => found.links(),
                };
                Ok(Offered { interface, links, link, netmask })
            }
            None => Err(Failure::Running(anyhow::anyhow!(
                "there is no interface {name}; -D lists the interfaces"
            ))),
        }
    }

    /// Link type of the interface without -y.
    pub fn link(&self) -> LinkType {
        self.link
    }

    /// Netmask of the first IPv4 address of the interface; 0 if there is none.
    pub fn netmask(&self) -> u32 {
        self.netmask
    }

    fn titles(&self) -> impl Iterator<Item = String> {
        self.links.iter().map(|link| {
            let title = link.description().map_or("unknown", |link| link.title);
            format!("{link} ({title})")
        })
    }

    /// Formats the list.
    pub fn list(&self) -> String {
        let head = format!("Data link types for {} (use option -y to set):\n", self.interface);
        head + &self.titles().map(|title| format!("  {title}\n")).collect::<String>()
    }

    /// Refuses a link type that the interface does not offer.
    pub fn check(&self, name: &str) -> Result<(), Failure> {
        let problem = match link_type(name) {
            Some(link) if self.links.contains(&link) => return Ok(()),
            Some(link) => format!("{} does not offer link type {link}", self.interface),
            None => format!("unknown link type {name:?}"),
        };
        let titles: Vec<String> = self.titles().collect();
        Err(Failure::Usage(format!("{problem}; {} offers {}", self.interface, titles.join(", "))))
    }
}

/// Returns the link type for the argument of -y.
pub fn link_type(name: &str) -> Option<LinkType> {
    LinkType::from_name(name.strip_prefix("DLT_").unwrap_or(name))
}

/// The clocks that an interface offers: the kernel's. The clocks of network cards are not used, because they are not
/// the system's time and change with the card.
pub struct TimeStamps {
    interface: String,
}

/// Names of time stamp types, with their titles. Source: pcap-tstamp(7).
const TYPES: [(&str, &str); 7] = [
    (HOST, "Host"),
    ("host_lowprec", "Host, low precision"),
    ("host_hiprec", "Host, high precision"),
    ("host_hiprec_unsynced", "Host, high precision, not synced with system time"),
    ("adapter", "Adapter"),
    ("adapter_unsynced", "Adapter, not synced with system time"),
    ("adapter_raw", "Adapter, raw"),
];

/// Type of the kernel's timestamps.
const HOST: &str = "host";

/// True if this is the name of a time stamp type.
pub fn is_time_stamp_type(name: &str) -> bool {
    TYPES.iter().any(|(known, _)| *known == name)
}

impl TimeStamps {
    /// Looks up the interface in the arguments.
    pub fn of(args: &SourceArgs) -> Result<TimeStamps, Failure> {
        if args.read.is_some() {
            let message = "-j and -J are for interfaces; the timestamps of a file are as they are, so omit \
                           these options";
            return Err(Failure::Usage(message.to_owned()));
        }
        Ok(TimeStamps { interface: interface(args)? })
    }

    /// Formats the list.
    pub fn list(&self) -> String {
        let (name, title) = TYPES[0];
        let interface = &self.interface;
        format!("Time stamp types for {interface} (use option -j to set):\n  {name} ({title})\n")
    }

    /// Refuses a type that is not offered.
    pub fn check(&self, name: &str) -> Result<(), Failure> {
        let problem = match name {
            HOST => return Ok(()),
            _ if is_time_stamp_type(name) => {
                format!("{} does not offer timestamps of type {name} to fyke", self.interface)
            }
            _ => format!("unknown time stamp type {name:?}"),
        };
        Err(Failure::Usage(format!(
            "-j: {problem}; use -j host, the kernel's clock, which is the default"
        )))
    }
}

/// Prints the interfaces that can be captured on, with their numbers.
pub fn list_interfaces() -> Result<(), Failure> {
    let mut out = super::super::output();
    for (number, interface) in fyke_capture::interfaces_available()?.iter().enumerate() {
        writeln!(out, "{}.{interface}", number + 1)?;
    }
    Ok(())
}
