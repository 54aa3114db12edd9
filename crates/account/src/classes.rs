//! Classes of applications: named filter texts and trackers, from a file or built in.
//!
//! A line is `NAME: EXPR` in the pcap language, or `NAME: follow PROTOCOL[,PROTOCOL]` for the frames that the trackers
//! of these protocols recognise; `#` begins a comment. A frame has the first class that it belongs to, so later lines
//! see what is left by difference. Several lines of one name are one class.

use crate::class::check_name;
use crate::tallies::UNKNOWN;
use fyke_track::registry;

/// Most lines of a list.
pub const MAX_CLASSES: usize = 4_096;

/// The frames that belong to a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Members {
    /// The frames that a text of the pcap language accepts.
    Filter(String),
    /// The frames that the trackers of these protocols recognise, separated by commas.
    Follow(String),
}

/// A line of a list of classes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassLine {
    /// Name of the class.
    pub name: String,
    /// The frames that belong to it.
    pub members: Members,
}

/// The built-in list: well-known services by their ports, services with dynamic ports by the trackers that follow them,
/// and peer-to-peer, which strings confirm, among what is left.
pub const BUILT_IN: &str = "\
# NAME: EXPR, or NAME: follow PROTOCOL[,PROTOCOL]. A frame has the first class that it belongs to.
dns: port 53 or tcp port 853 or udp port 5353 or udp port 5355
web: tcp port 80 or tcp port 443 or udp port 443 or tcp port 8080 or tcp port 8443
mail: tcp port 25 or tcp port 465 or tcp port 587 or tcp port 110 or tcp port 995 or tcp port 143 or tcp port 993
voip: follow sip,h323,mgcp,skinny
voip: port 5060 or port 5061 or tcp port 1720 or udp port 1719 or udp port 2427
streaming: follow rtsp
streaming: port 554
files: follow ftp,tftp
files: tcp port 20 or tcp port 21 or udp port 69 or tcp port 445 or tcp port 139 or port 2049 or tcp port 873
remote: tcp port 22 or tcp port 23 or port 3389 or tcp portrange 5900-5909
vpn: udp port 500 or udp port 4500 or udp port 1194 or udp port 51820 or ip proto 47 or ip proto 50 or ip proto 51
directory: port 88 or port 389 or tcp port 636 or udp port 137 or udp port 138 or port 135
database: tcp port 1433 or tcp port 1521 or tcp port 3306 or tcp port 5432 or tcp port 6379 or tcp port 27017
control: udp port 67 or udp port 68 or udp port 123 or udp port 161 or udp port 162 or port 514 or udp port 1900 or \
    udp port 546 or udp port 547 or tcp port 179 or icmp or icmp6 or ip proto 2 or ip proto 89
chat: follow irc
chat: tcp port 6667 or tcp port 6697
p2p: follow p2p
";

/// Reads a list.
///
/// # Errors
/// If a line is no class, with the number of the line.
pub fn parse(text: &str) -> Result<Vec<ClassLine>, String> {
    let mut classes = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        classes.push(class_line(line).map_err(|why| format!("line {number}: {why}"))?);
        if classes.len() > MAX_CLASSES {
            return Err(format!("line {number}: there are more than {MAX_CLASSES} classes"));
        }
    }
    if classes.is_empty() {
        return Err("there is no class in it; a line is `NAME: EXPR`".to_owned());
    }
    Ok(classes)
}

fn class_line(line: &str) -> Result<ClassLine, String> {
    let Some((name, members)) = line.split_once(':') else {
        return Err(format!(
            "`{line}`: expected `NAME: EXPR` or `NAME: follow PROTOCOL[,PROTOCOL]`"
        ));
    };
    let (name, members) = (name.trim(), members.trim());
    check_name(name)?;
    if name == UNKNOWN {
        return Err(format!(
            "`{UNKNOWN}` is the name of the frames of no class; choose another name"
        ));
    }
    let members = match members.strip_prefix("follow ") {
        Some(protocols) => {
            let kinds = registry::parse(protocols)?;
            let names: Vec<_> = kinds.iter().map(|kind| kind.name).collect();
            Members::Follow(names.join(","))
        }
        None if members.is_empty() => return Err(format!("`{name}:`: an expression is missing")),
        None => Members::Filter(members.to_owned()),
    };
    Ok(ClassLine { name: name.to_owned(), members })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_list_is_a_list() {
        let classes = parse(BUILT_IN).unwrap();
        assert_eq!(classes[0].name, "dns");
        let last = classes.last().unwrap();
        assert_eq!((&*last.name, &last.members), ("p2p", &Members::Follow("p2p".into())));
    }

    #[test]
    fn wrong_lines_are_refused_with_their_number() {
        for (text, part) in [
            ("# none\n", "no class"),
            ("web: tcp port 80\nmail tcp\n", "line 2: `mail tcp`: expected"),
            ("a b: tcp", "line 1: the name `a b`"),
            ("web:", "an expression is missing"),
            ("unknown: tcp", "choose another name"),
            ("x: follow nothing", "is none of"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let one = parse("web: tcp port 80 # and more\n").unwrap();
        assert_eq!(one[0].members, Members::Filter("tcp port 80".into()));
    }
}
