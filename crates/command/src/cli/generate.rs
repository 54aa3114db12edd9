//! Arguments of `fyke generate`, which sends generated frames in network namespaces.

use super::from_one;
use clap::Args;
use fyke_lab::generate::{MAX_FLOWS, MAX_THREADS, Protocol, Sizes};
use std::time::Duration;

/// Longest duration.
const MAX_SECONDS: f64 = 86_400.0;

/// `fyke generate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Frames are sent in network namespaces only; on an interface of the host's first namespace nothing
is sent (loopback is allowed). Without -i, fyke makes a pair of namespaces with a wire between them
for the run, and also counts the frames that arrive at the other end.

Sizes are those that captures show: with the Ethernet header, without the check sequence of 4
bytes. Addresses are those for benchmarks (198.18.0.0/15), and the destination (MAC) is no
device's, so no host answers. Frames that the queue of the interface refuses are sent again:
the number sent is exact, and the refusals are counted. The sender sleeps between its calls.

Examples:
  fyke generate --rate 250000 --sizes 64-1520 --for 10s
  fyke generate -i veth0 --netns blue --rate 100000 --size imix --flows 1000
  fyke generate --sweep --for 2s                frames per second at each of seven sizes
  ip netns exec blue fyke generate -i veth0 --count 1000000 --json")]
pub struct GenerateArgs {
    /// Interface to send on, in a network namespace; without it, a pair of namespaces made for the run
    #[arg(short, long, value_name = "IF")]
    pub interface: Option<String>,
    /// Network namespace of the interface: a name of `ip netns`, or the id of a process in it
    #[arg(long, value_name = "NAME|PID", requires = "interface")]
    pub netns: Option<String>,
    /// Frames per second, or `max`
    #[arg(long, value_name = "N|max", default_value = "max", value_parser = rate)]
    pub rate: Rate,
    /// Size of the frames in bytes: 60 to 9216, a range such as 64-1520, or `imix`: 60, 590 and 1514 in the ratio 7:4:1
    #[arg(
        long,
        visible_alias = "sizes",
        value_name = "SIZE",
        default_value = "64",
        conflicts_with = "sweep"
    )]
    pub size: Sizes,
    /// Stop after N frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Stop after this time, such as 10s, 500ms or 2m; by default, at an interrupt (with --sweep: 1s for each size)
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub time: Option<Duration>,
    /// Number of flows: pairs of addresses and ports, in turn
    #[arg(long, value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_FLOWS)))]
    pub flows: u32,
    /// Protocol of the frames
    #[arg(long, value_name = "PROTOCOL", default_value = "udp")]
    pub protocol: GenerateProtocol,
    /// VLAN of the frames; the tag is part of their size
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(0..=4_095))]
    pub vlan: Option<u16>,
    /// Destination address of the frames, instead of that of no device
    #[arg(long, value_name = "ADDRESS", value_parser = mac)]
    pub mac: Option<Mac>,
    /// Seed of the drawn sizes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Number of threads that send; the rate and the number are divided among them
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = from_one().range(..=MAX_THREADS as i64))]
    pub threads: u32,
    /// Send past the queueing discipline: quicker, but captures on the same interface do not see the frames
    #[arg(long)]
    pub direct: bool,
    /// Send frames of 64, 128, 256, 512, 1024, 1280 and 1520 bytes (or the longest of the interface) in turn, and print
    /// the rate at each size
    #[arg(long)]
    pub sweep: bool,
    /// Print one JSON object (with --sweep: one for each size)
    #[arg(long)]
    pub json: bool,
}

/// Protocols of `fyke generate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum GenerateProtocol {
    /// UDP datagrams
    Udp,
    /// TCP segments of no connection
    Tcp,
    /// Flows of UDP and of TCP in turn
    Both,
}

impl From<GenerateProtocol> for Protocol {
    fn from(given: GenerateProtocol) -> Protocol {
        match given {
            GenerateProtocol::Udp => Protocol::Udp,
            GenerateProtocol::Tcp => Protocol::Tcp,
            GenerateProtocol::Both => Protocol::Both,
        }
    }
}

/// A rate; `None` for as many frames as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub Option<u64>);

/// A link-layer address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

fn rate(text: &str) -> Result<Rate, String> {
    match text.parse() {
        _ if text == "max" => Ok(Rate(None)),
        Ok(rate @ 1..=100_000_000) => Ok(Rate(Some(rate))),
        _ => Err("expected 1 to 100000000 frames per second, or `max`".to_owned()),
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3_600.0)];
    let with_unit = |&(unit, seconds): &(&str, f64)| Some((text.strip_suffix(unit)?, seconds));
    let (number, seconds) = units.iter().find_map(with_unit).unwrap_or((text, 1.0));
    let given = number.parse::<f64>().ok().map(|number| number * seconds);
    match given.filter(|seconds| (0.001..=MAX_SECONDS).contains(seconds)) {
        Some(seconds) => Ok(Duration::from_secs_f64(seconds)),
        None => Err("expected a time of 1ms to 24h, such as 10s, 500ms or 2m".to_owned()),
    }
}

fn mac(text: &str) -> Result<Mac, String> {
    let parts: Vec<_> = text.split(':').collect();
    let byte = |part: &&str| {
        let is_hex = part.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_hex.then(|| u8::from_str_radix(part, 16).ok()).flatten()
    };
    let bytes: Option<Vec<u8>> = parts.iter().map(byte).collect();
    let bytes = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
    bytes.map(Mac).ok_or_else(|| "expected an address such as 02:00:00:00:00:02".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_times_and_addresses_are_read_or_refused() {
        assert_eq!(rate("max"), Ok(Rate(None)));
        assert_eq!(rate("250000"), Ok(Rate(Some(250_000))));
        for wrong in ["0", "-1", "", "fast", "100000001"] {
            assert!(rate(wrong).is_err(), "{wrong:?}");
        }
        for (text, ms) in [("10s", 10_000), ("500ms", 500), ("2m", 120_000), ("1.5", 1_500)] {
            assert_eq!(time(text), Ok(Duration::from_millis(ms)));
        }
        for wrong in ["", "s", "0s", "-1s", "25h", "inf", "nan", "1e99s", "1 s"] {
            assert!(time(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(mac("02:0:0:0:ff:2"), Ok(Mac([2, 0, 0, 0, 255, 2])));
        for wrong in ["", "02:00:00:00:00", "02:00:00:00:00:00:00", "g:0:0:0:0:0", "+2:0:0:0:0:0"] {
            assert!(mac(wrong).is_err(), "{wrong:?}");
        }
    }
}
