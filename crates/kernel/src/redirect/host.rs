//! Reasons why frames must not be taken from an interface: the host uses it.

use crate::sys::objects;
use std::io;

/// Number of the main table of routes.
const MAIN: u32 = 254;

/// Returns the reason why the host needs the frames of an interface; `None` for a monitoring port.
///
/// # Errors
/// The interface does not exist, or the system does not tell.
pub fn host_needs(interface: &str) -> io::Result<Option<String>> {
    let index = objects::interface_index(interface)?;
    if let Some(address) = objects::addresses(interface)?.first() {
        let link_local = "; IPv6 gave it this address by itself, sysctl \
                          net.ipv6.conf.IF.disable_ipv6=1 takes it away";
        let is_by_itself = address.to_string().starts_with("fe80:");
        let hint = if is_by_itself { link_local.replace("IF", interface) } else { String::new() };
        return Ok(Some(format!("{interface} has the address {address}{hint}")));
    }
    if let Some(master) = objects::link_facts(index)?.master {
        let master = objects::link_facts(master)?;
        let kind = if master.kind.is_empty() { "interface".to_owned() } else { master.kind };
        return Ok(Some(format!("{interface} is a port of the {kind} {}", master.name)));
    }
    if let Some(upper) = objects::uppers(index)?.first() {
        let kind = if upper.kind.is_empty() { "interface" } else { &upper.kind };
        return Ok(Some(format!("{interface} carries the {kind} {}", upper.name)));
    }
    Ok(objects::routes(index)?.first().map(|route| {
        let net = route.net.map_or("default".to_owned(), |(net, bits)| format!("{net}/{bits}"));
        let table =
            if route.table == MAIN { String::new() } else { format!(", table {}", route.table) };
        format!("{interface} carries the route to {net}{table}")
    }))
}
