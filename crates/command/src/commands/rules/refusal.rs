//! Reasons why rules must not drop the frames of an interface: the host uses it.

use fyke_kernel::sys::objects;
use std::io;

/// Returns the reason why the host needs the frames of an interface; `None` for a monitoring port.
///
/// # Errors
/// The interface does not exist, or the system does not tell.
pub fn of(interface: &str) -> io::Result<Option<String>> {
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
    Ok(route(interface)?.map(|route| format!("{interface} carries the route to {route}")))
}

/// Finds a route that leaves by an interface.
fn route(interface: &str) -> io::Result<Option<String>> {
    let table = |name: &str| match std::fs::read_to_string(format!("/proc/thread-self/net/{name}"))
    {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        text => text,
    };
    Ok(route_v4(&table("route")?, interface).or(route_v6(&table("ipv6_route")?, interface)))
}

/// Reads `/proc/net/route`: interface, destination and mask, in hexadecimal numbers of this machine.
fn route_v4(table: &str, interface: &str) -> Option<String> {
    let mut lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.find(|line| line.first() == Some(&interface))?;
    let word = |at: usize| u32::from_str_radix(line.get(at).copied().unwrap_or("0"), 16).ok();
    let address = std::net::Ipv4Addr::from(word(1)?.to_ne_bytes());
    Some(format!("{address}/{}", word(7)?.count_ones()))
}

/// Reads `/proc/net/ipv6_route`: destination, prefix length, …, interface. Multicast is on every interface.
fn route_v6(table: &str, interface: &str) -> Option<String> {
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let is_one = |line: &[&str]| line[0] != "ff000000000000000000000000000000";
    let line = lines.find(|line| line.last() == Some(&interface) && is_one(line))?;
    let address = std::net::Ipv6Addr::from(u128::from_str_radix(line[0], 16).ok()?);
    Some(format!("{address}/{}", u8::from_str_radix(line.get(1)?, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_read_from_the_tables_of_the_kernel() {
        let word = |text: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(text));
        let v4 = format!(
            "Iface\tDestination\tGateway\nlan\t{}\t00000000\t0001\t0\t0\t0\t{}\t0\t0\t0\n",
            word([10, 1, 0, 0]),
            word([255, 255, 0, 0])
        );
        assert_eq!(route_v4(&v4, "lan").as_deref(), Some("10.1.0.0/16"));
        assert_eq!(route_v4(&v4, "la"), None);
        let v6 = "20010db8000000000000000000000000 20 0000 00 00 00000100 00000001 0 00000001 lan\n\
                  ff000000000000000000000000000000 08 0000 00 00 00000100 00000001 0 00000001 mon\n";
        assert_eq!(route_v6(v6, "lan").as_deref(), Some("2001:db8::/32"));
        assert_eq!(route_v6(v6, "mon"), None);
        assert_eq!((route_v4("", "lan"), route_v6("", "lan")), (None, None));
    }
}
