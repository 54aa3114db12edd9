//! What people trip over in libpcap's language, said of the texts that do: `fyke explain`'s notes.
//!
//! A note says what the text means where many expect something else. Only the reading as libpcap's has these; a text
//! without traps gets none. Source: pcap-filter(7) and the questions that users ask.

use fyke_filter::ast::{AddressFamily, Arithmetic, Carrier, Comparison};
use fyke_filter::{Node, Predicate, Primitive, PrimitiveKind as Kind, Reading};
use std::net::IpAddr;

/// The notes on a text, each once, in the order in which their causes come.
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

/// `a or b and c` without brackets.
fn mixed(text: &str, node: &Node) -> Option<String> {
    let Node::All(operands) = node else { return None };
    let [Node::Any(alternatives), next, more @ ..] = &operands[..] else { return None };
    let first = alternatives.first()?.primitives().next()?.span.start;
    let end = alternatives.last()?.primitives().last()?.span.end;
    let after = next.primitives().next()?;
    if text.get(end..after.span.start)?.contains(')') {
        return None;
    }
    // With the words between, such as "not".
    let right = text.get(end..after.span.end)?.trim_start();
    let right = right.strip_prefix("and").or_else(|| right.strip_prefix("&&"))?.trim_start();
    let left = text.get(first..end)?;
    let more = if more.is_empty() { "" } else { " …" };
    Some(format!(
        "\"and\" and \"or\" bind alike, from the left: this is \"({left}) and {right}{more}\"; \
         brackets say what is meant"
    ))
}

/// Tags and tunnels that are asked on one side of an "or", or under "not", and move what comes after them.
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
        "after \"{word}\" the rest of the text looks behind that header, across \"or\", \"not\" and \
         brackets too; put what is meant for plain frames before it"
    ))
}

fn of_primitive(text: &str, primitive: &Primitive) -> Option<String> {
    let own = text.get(primitive.span.clone())?;
    let last = own.rsplit([' ', '(']).next().unwrap_or(own);
    match &primitive.kind {
        Kind::Host { address: IpAddr::V4(address), .. } if last.parse::<u16>().is_ok() => {
            Some(format!("\"{own}\" is the host {address}; a port has \"port\" before it"))
        }
        Kind::Host { family: AddressFamily::Any, .. } => Some(
            "\"host\" also finds the address in ARP and RARP; \"ip host\" asks IPv4 only"
                .to_string(),
        ),
        Kind::Port { transport: Some(transport), .. }
            if last.starts_with(|c: char| c.is_ascii_alphabetic())
                && !["tcp", "udp", "sctp"].iter().any(|word| text.contains(word)) =>
        {
            let name = format!("{transport:?}").to_uppercase();
            Some(format!("the name \"{last}\" asks for {name} as well; a number does not"))
        }
        Kind::LengthAtMost(most) => Some(format!("\"less {most}\" is {most} or less")),
        Kind::LengthAtLeast(least) => Some(format!("\"greater {least}\" is {least} or more")),
        Kind::Protocol { carrier: Carrier::Ip6, .. } => Some(
            "\"ip6 proto\" looks at the first header (and behind one fragment header) only; \
             \"ip6 protochain\" follows them"
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
        return Some(format!("numbers have no sign: this comparison {word} holds"));
    }
    (left.reads_transport() || right.reads_transport()).then(|| {
        "\"tcp[…]\", \"udp[…]\" and their like read IPv4 packets only, first fragments at that"
            .to_string()
    })
}
