//! Texts of filters before they go to a group: checked by the compiler that the sensors use.
//!
//! The link types of the group are not all known here: a sensor may start later. So a text is refused only if it is
//! valid for no link type; the sensors refuse what does not fit theirs.

use crate::commands::Failure;
use fyke_filter::{Options, Reading};
use fyke_frame::LinkType;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Between the filter and the endpoint of a text for `fyke demux`.
const ENDPOINT: &str = "=>";

/// Refuses a text that no fyke could put in force.
pub fn check(text: &str) -> Result<(), Failure> {
    // The endpoint is checked by the demux.
    let filter = text.rsplit_once(ENDPOINT).map_or(text, |(filter, _)| filter);
    let common = options(LinkType::EN10MB, true, Reading::Compat);
    let Err(error) = fyke_filter::compile(filter, &common) else { return Ok(()) };
    let links = fyke_frame::link::decoded().map(|link| link.numbers[0]);
    match links.into_iter().any(|link| is_valid(filter, link)) {
        true => Ok(()),
        false => Err(Failure::Usage(error.to_string())),
    }
}

/// True if some fyke takes the filter for this link type: live or from a file, in either reading.
fn is_valid(filter: &str, link: LinkType) -> bool {
    let all = [(true, Reading::Compat), (true, Reading::Scoped), (false, Reading::Compat)];
    let mut all = all.into_iter().map(|(live, reading)| options(link, live, reading));
    all.any(|options| fyke_filter::compile(filter, &options).is_ok())
}

fn options(link: LinkType, live: bool, reading: Reading) -> Options {
    let (netmask, resolve) = (Some(0), Some(any_address as fn(&str) -> Vec<IpAddr>));
    Options { link, live, reading, netmask, resolve, ..Options::default() }
}

/// In place of the addresses of a host: its name is looked up at the sensors, which may have others.
fn any_address(_name: &str) -> Vec<IpAddr> {
    vec![Ipv4Addr::new(192, 0, 2, 1).into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_text_that_fits_nowhere_is_refused() {
        for text in
            ["udp port 53", "wlan type mgt", "ip broadcast", "inbound", "tcp => lo", "host a.b"]
        {
            assert!(check(text).is_ok(), "{text}");
        }
        for text in ["udp prt 5", "udp prt 5 => lo", "(device, v1) > (tofile, \"x\")"] {
            let Err(Failure::Usage(said)) = check(text) else { panic!("{text}") };
            assert!(said.contains('^'), "{said}");
        }
    }
}
