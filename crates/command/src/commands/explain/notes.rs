//! Notes of `fyke explain` on common misunderstandings of libpcap's language.
//!
//! A note explains the meaning of an expression where many users expect another one. Only the compat reading has notes.
//! Source: pcap-filter(7) and frequent questions of users.

use fyke_filter::ast::{AddressFamily, Arithmetic, Carrier, Comparison};
use fyke_filter::{Node, Predicate, Primitive, PrimitiveKind as Kind, Reading};
use std::net::IpAddr;

/// Returns the notes on an expression, each once, in the order of their causes.
pub fn of(predicate: &Predicate) -> Vec<String> {
    if predicate.reading() == Reading::Scoped {
        return Vec::new();
    }
    let mut notes = Vec::new();
    let mut say = |note: String| {
        if !notes.contains(&note) {
            notes.push(note);
        }
    };
    let text = predicate.text();
    let mut rest = vec![predicate.root()];
    while let Some(node) = rest.pop() {
        mixed(text, node).into_iter().for_each(&mut say);
        shifted(node).into_iter().for_each(&mut say);
        if let Node::Primitive(primitive) = node {
            of_primitive(text, primitive).into_iter().for_each(&mut say);
        }
        rest.extend(node.children().iter().rev());
    }
    notes
}

/// Returns the note on `a or b and c` without parentheses.
fn mixed(text: &str, node: &Node) -> Option<String> {
    let Node::All(operands) = node else { return None };
    let [Node::Any(alternatives), next, more @ ..] = &operands[..] else { return None };
    let first = alternatives.first()?.primitives().next()?.span.start;
    let end = alternatives.last()?.primitives().last()?.span.end;
    let after = next.primitives().next()?;
    if text.get(end..after.span.start)?.contains(')') {
        return None;
    }
    // Includes the words between the operands, such as "not".
    let right = text.get(end..after.span.end)?.trim_start();
    let right = right.strip_prefix("and").or_else(|| right.strip_prefix("&&"))?.trim_start();
    let left = text.get(first..end)?;
    let more = if more.is_empty() { "" } else { " …" };
    Some(format!(
        "\"and\" and \"or\" have the same precedence and group from the left: this is \
         \"({left}) and {right}{more}\"; use parentheses to group differently"
    ))
}

/// Returns the note on a tag or tunnel keyword in an operand of "or" or "not": it shifts the offsets of the rest.
fn shifted(node: &Node) -> Option<String> {
    let operands = match node {
        Node::Any(operands) => operands.split_last()?.1,
        Node::Not(inner) => std::slice::from_ref(&**inner),
        _ => return None,
    };
    let word = operands.iter().flat_map(Node::primitives).find_map(|one| match one.kind {
        Kind::Vlan(_) => Some("vlan"),
        Kind::Mpls(_) => Some("mpls"),
        Kind::PppoeSession(_) => Some("pppoes"),
        Kind::Geneve(_) => Some("geneve"),
        _ => None,
    })?;
    Some(format!(
        "after \"{word}\", the rest of the expression applies after that header, even outside of the \
         \"or\", \"not\" or parentheses; move tests for plain frames in front of it"
    ))
}

fn of_primitive(text: &str, primitive: &Primitive) -> Option<String> {
    let own = text.get(primitive.span.clone())?;
    let last = own.rsplit([' ', '(']).next().unwrap_or(own);
    match &primitive.kind {
        Kind::Host { address: IpAddr::V4(address), .. } if last.parse::<u16>().is_ok() => {
            Some(format!("\"{own}\" means the host {address}; write \"port\" before a port"))
        }
        Kind::Host { family: AddressFamily::Any, .. } => Some(
            "\"host\" also finds the address in ARP and RARP; \"ip host\" finds it in IPv4 only"
                .to_string(),
        ),
        Kind::Port { transport: Some(transport), .. }
            if last.starts_with(|c: char| c.is_ascii_alphabetic())
                && !["tcp", "udp", "sctp"].iter().any(|word| text.contains(word)) =>
        {
            let name = format!("{transport:?}").to_uppercase();
            Some(format!("the name \"{last}\" also requires {name}; a number does not"))
        }
        Kind::LengthAtMost(most) => Some(format!("\"less {most}\" means {most} or less")),
        Kind::LengthAtLeast(least) => Some(format!("\"greater {least}\" means {least} or more")),
        Kind::Protocol { carrier: Carrier::Ip6, .. } => Some(
            "\"ip6 proto\" checks only the first header (or the header after one fragment header); \
             \"ip6 protochain\" follows all extension headers"
                .to_string(),
        ),
        Kind::Relation { left, comparison, right } => relation(left, *comparison, right),
        _ => None,
    }
}

fn relation(left: &Arithmetic, comparison: Comparison, right: &Arithmetic) -> Option<String> {
    let never = matches!(
        (comparison, right),
        (Comparison::Less, Arithmetic::Number(0))
            | (Comparison::GreaterOrEqual, Arithmetic::Number(0))
    );
    if never {
        let word = if comparison == Comparison::Less { "never" } else { "always" };
        return Some(format!("numbers are unsigned: this comparison is {word} true"));
    }
    (left.reads_transport() || right.reads_transport()).then(|| {
        "\"tcp[…]\", \"udp[…]\" and similar read IPv4 packets only, and of fragments only the first"
            .to_string()
    })
}
