//! Lists of addresses, nets and ports as filter texts: `fyke ctl add --hosts FILE`.

use super::super::{Failure, shortened};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The filter text of a list: one of its items, and `also` if that is not empty. `name` names the list in errors.
pub fn text(name: &str, list: &str, also: &str) -> Result<String, Failure> {
    let mut known = HashSet::new();
    let (mut parts, mut twice) = (Vec::new(), 0usize);
    for (number, line) in (1..).zip(list.lines()) {
        let item = line.split('#').next().unwrap_or_default().trim();
        if item.is_empty() {
            continue;
        }
        let part = part(item).map_err(|problem| {
            let indent = line.len() - line.trim_start().len();
            let indent: String =
                line[..indent].chars().map(|c| if c == '\t' { c } else { ' ' }).collect();
            let line = shortened(line);
            // A long line is cut.
            let shown = line.chars().count().saturating_sub(indent.chars().count());
            let marks = "^".repeat(item.chars().count().min(shown));
            Failure::Usage(format!("{name}:{number}: {problem}\n  {line}\n  {indent}{marks}"))
        })?;
        match known.insert(part.clone()) {
            true => parts.push(part),
            false => twice += 1,
        }
    }
    if parts.is_empty() {
        return Err(Failure::Usage(format!("{name} lists no address, net or port")));
    }
    if twice > 0 {
        note!("fyke: {name}: {twice} of {} items are repetitions", parts.len() + twice);
    }
    let any = parts.join(" or ");
    Ok(match also.trim() {
        "" => any,
        also => format!("({also}) and ({any})"),
    })
}

/// The primitive for an item.
fn part(item: &str) -> Result<String, String> {
    if let Some((protocol, ports)) = item.split_once('/')
        && ["tcp", "udp", "sctp"].contains(&protocol)
    {
        return ports_of(ports).map(|ports| format!("{protocol} {ports}"));
    }
    let is_ports = |letter: char| letter.is_ascii_digit() || letter == '-';
    if item.chars().all(is_ports) {
        return ports_of(item);
    }
    match item.split_once('/') {
        None => match item.parse::<IpAddr>() {
            Ok(address) => Ok(format!("host {address}")),
            Err(_) => Err(EXPECTED.to_owned()),
        },
        Some((address, len)) => net(address, len),
    }
}

const EXPECTED: &str = "expected an address, a net (10.0.0.0/8) or a port (5060, 5000-5010, tcp/443); names are not \
                        looked up here";

fn net(address: &str, len: &str) -> Result<String, String> {
    let address: IpAddr = address.parse().map_err(|_| EXPECTED.to_owned())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let is_number = !len.is_empty() && len.chars().all(|letter| letter.is_ascii_digit());
    let bits = len.parse::<u32>().ok().filter(|bits| is_number && *bits <= most);
    let bits = bits.ok_or_else(|| format!("a net of this kind has a length from 0 to {most}"))?;
    let first: IpAddr = match address {
        IpAddr::V4(given) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            Ipv4Addr::from_bits(given.to_bits() & mask).into()
        }
        IpAddr::V6(given) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            Ipv6Addr::from_bits(given.to_bits() & mask).into()
        }
    };
    if first != address {
        return Err(format!("bits after the length are set; the net is {first}/{bits}"));
    }
    Ok(format!("net {address}/{bits}"))
}

fn ports_of(text: &str) -> Result<String, String> {
    let port = |text: &str| {
        let number = text.parse::<u16>().ok().filter(|_| !text.starts_with('+'));
        number.ok_or_else(|| format!("{text:?} is not a port from 0 to 65535"))
    };
    match text.split_once('-') {
        None => Ok(format!("port {}", port(text)?)),
        Some((first, last)) => {
            let (first, last) = (port(first)?, port(last)?);
            match first <= last {
                true => Ok(format!("portrange {first}-{last}")),
                false => Err(format!("the range ends before it begins: {last}-{first} is one")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &str, also: &str) -> Result<String, String> {
        text("list", list, also).map_err(|failure| failure.message())
    }

    #[test]
    fn a_list_is_one_text() {
        let list = "# suspects\n10.0.0.7\n\n 10.1.0.0/16 # office\n2001:db8::1\n2001:db8::/32\n80\n5000-5010\ntcp/443\n\
                    10.0.0.7\nudp/1-2\n0.0.0.0/0\n";
        let text = "host 10.0.0.7 or net 10.1.0.0/16 or host 2001:db8::1 or net 2001:db8::/32 or port 80 or \
                    portrange 5000-5010 or tcp port 443 or udp portrange 1-2 or net 0.0.0.0/0";
        assert_eq!(of(list, "").as_deref(), Ok(text));
        assert_eq!(of("1.2.3.4", "udp").as_deref(), Ok("(udp) and (host 1.2.3.4)"));
        for text in [of(list, ""), of(list, "udp or tcp")] {
            let options = fyke_filter::Options::default();
            assert!(fyke_filter::compile(&text.unwrap(), &options).is_ok());
        }
    }

    #[test]
    fn an_error_names_the_line_and_marks_the_item() {
        for (list, part) in [
            ("10.0.0.7\n 10.0.0.300 # no\n", "list:2: expected an address"),
            ("10.0.0.1/8", "the net is 10.0.0.0/8"),
            ("10.0.0.0/33", "from 0 to 32"),
            ("10.0.0.0/+8", "from 0 to 32"),
            ("::/129", "from 0 to 128"),
            ("70000", "\"70000\" is not a port"),
            ("9-3", "3-9 is one"),
            ("1-2-3", "\"2-3\" is not a port"),
            ("tcp/http", "\"http\" is not a port"),
            ("example.com", "names are not looked up"),
            ("10.0.0.1 10.0.0.2", "expected an address"),
            ("# nothing\n", "lists no address"),
        ] {
            let error = of(list, "").unwrap_err();
            assert!(error.contains(part), "{list:?}: {error}");
        }
        let error = of("10.0.0.7\n 10.0.0.300 # no\n", "").unwrap_err();
        assert!(error.ends_with("\n   10.0.0.300 # no\n   ^^^^^^^^^^"), "{error}");
        let long = of(&"x".repeat(100_000), "").unwrap_err();
        assert!(long.len() < 1_500 && long.contains("(100000 characters)"), "{long}");
    }
}
