//! Alerts and records as lines of JSON, with the names that Suricata's EVE output has.

use crate::app::{Message, dns};
use crate::buffer::{Application, Buffer};
use crate::engine::flow::Flow;
use crate::engine::{Alert, Counters};
use crate::rule::Action;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fyke_frame::Frame;
use serde_json::{Map, Value, json};

/// Most bytes of a text in an alert.
const MAX_TEXT: usize = 4096;

/// Additions to alerts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// The payload, in base 64.
    pub payload: bool,
}

/// An alert as one line, without its end.
pub fn line(alert: &Alert<'_>, options: Options) -> String {
    let (rule, packet, flow) = (alert.rule, alert.packet, alert.flow);
    let mut object = json!({
        "timestamp": timestamp(packet.time_ns),
        "flow_id": flow.id,
        "pcap_cnt": alert.frame,
        "event_type": "alert",
        "src_ip": packet.source.0.to_string(),
        "dest_ip": packet.destination.0.to_string(),
        "proto": protocol(packet.protocol),
        "direction": if alert.to_server { "to_server" } else { "to_client" },
        "alert": {
            "action": "allowed",
            "gid": rule.gid,
            "signature_id": rule.sid,
            "rev": rule.rev,
            "signature": rule.message,
            "category": rule.category,
            "severity": rule.priority,
        },
        "flow": {
            "pkts_toserver": flow.packets[0],
            "pkts_toclient": flow.packets[1],
            "bytes_toserver": flow.bytes[0],
            "bytes_toclient": flow.bytes[1],
            "start": timestamp(flow.start_ns),
        },
    });
    add_vlan(&mut object, flow.vlan);
    match packet.icmp() {
        Some((kind, code)) => {
            object["icmp_type"] = kind.into();
            object["icmp_code"] = code.into();
        }
        None => {
            object["src_port"] = packet.source.1.into();
            object["dest_port"] = packet.destination.1.into();
        }
    }
    let verdict = match rule.action {
        Action::Alert => None,
        Action::Pass => Some("pass"),
        Action::Drop => Some("would drop"),
        Action::Reject => Some("would reject"),
    };
    if let Some(action) = verdict {
        object["verdict"] = json!({ "action": action });
    }
    if !rule.metadata.is_empty() {
        object["alert"]["metadata"] = metadata(&rule.metadata);
    }
    if let Some(application) = alert.application {
        object["app_proto"] = application.name().into();
        let fields = fields(alert);
        if !fields.is_empty() {
            object[application.name()] = Value::Object(fields);
        }
    }
    if options.payload {
        object["payload"] = STANDARD.encode(packet.payload).into();
    }
    object.to_string()
}

/// An alert as a line of text.
pub fn text(alert: &Alert<'_>) -> String {
    let (rule, packet) = (alert.rule, alert.packet);
    let end = |(address, port): crate::engine::End| match (packet.icmp(), address.is_ipv6()) {
        (Some(_), _) => address.to_string(),
        (None, true) => format!("[{address}]:{port}"),
        (None, false) => format!("{address}:{port}"),
    };
    let class = if rule.category.is_empty() { "none" } else { &rule.category };
    format!(
        "{} [{}:{}:{}] {} [class: {class}] [priority: {}] {{{}}} {} -> {}",
        timestamp(packet.time_ns),
        rule.gid,
        rule.sid,
        rule.rev,
        rule.message,
        rule.priority,
        protocol(packet.protocol),
        end(packet.source),
        end(packet.destination)
    )
}

/// Names of metadata in small letters with their values.
fn metadata(pairs: &[(String, String)]) -> Value {
    let mut object = Map::new();
    for (name, value) in pairs {
        let values = object.entry(name.to_ascii_lowercase()).or_insert_with(|| json!([]));
        if let Some(values) = values.as_array_mut() {
            values.push(value.as_str().into());
        }
    }
    Value::Object(object)
}

/// Fields of the message of an alert.
fn fields(alert: &Alert<'_>) -> Map<String, Value> {
    let mut fields = alert.message.map(message).unwrap_or_default();
    if alert.application == Some(Application::Dns) && !fields.is_empty() {
        let query = Value::Object(std::mem::take(&mut fields));
        fields.insert("query".to_owned(), json!([query]));
    }
    fields
}

/// Fields of a message.
pub fn message(message: &Message) -> Map<String, Value> {
    let mut fields = Map::new();
    let names: &[(&str, Buffer)] = match message.application {
        Application::Http => &[
            ("hostname", Buffer::HttpHost),
            ("url", Buffer::HttpUri),
            ("http_user_agent", Buffer::HttpUserAgent),
            ("http_content_type", Buffer::HttpContentType),
            ("http_refer", Buffer::HttpReferer),
            ("http_method", Buffer::HttpMethod),
            ("protocol", Buffer::HttpProtocol),
        ],
        Application::Tls => &[
            ("sni", Buffer::TlsServerName),
            ("subject", Buffer::TlsSubject),
            ("issuerdn", Buffer::TlsIssuer),
            ("serial", Buffer::TlsSerial),
            ("fingerprint", Buffer::TlsFingerprint),
        ],
        Application::Dns => &[("rrname", Buffer::DnsQueries)],
    };
    for (name, buffer) in names {
        if let Some(bytes) = message.get(*buffer) {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT)]);
            fields.insert((*name).to_owned(), text.into());
        }
    }
    let status = message
        .get(Buffer::HttpStatusCode)
        .and_then(|text| std::str::from_utf8(text).ok()?.parse::<u16>().ok());
    if let Some(status) = status {
        fields.insert("status".to_owned(), status.into());
    }
    if message.application == Application::Tls {
        add_hellos(message, &mut fields);
    }
    fields
}

/// Version 1.3 of TLS.
pub const TLS_1_3: u16 = 0x0304;

/// Adds the names of hellos, and the version that the server has chosen.
fn add_hellos(message: &Message, fields: &mut Map<String, Value>) {
    let text = |buffer| message.get(buffer).map(String::from_utf8_lossy);
    let names = [
        ("ja3", Buffer::Ja3Hash, Buffer::Ja3String),
        ("ja3s", Buffer::Ja3ServerHash, Buffer::Ja3ServerString),
    ];
    for (name, hash, string) in names {
        if let (Some(hash), Some(string)) = (text(hash), text(string)) {
            fields.insert(name.to_owned(), json!({ "hash": hash, "string": string }));
        }
    }
    if let Some(name) = text(Buffer::Ja4Hash) {
        fields.insert("ja4".to_owned(), name.into());
    }
    let version = message.get(Buffer::TlsVersion).and_then(<[u8]>::first_chunk::<2>);
    if let (Some(version), false) = (version, message.to_server) {
        let version = match u16::from_be_bytes(*version) {
            0x0300 => "SSLv3".to_owned(),
            0x0301 => "TLSv1".to_owned(),
            0x0302 => "TLS 1.1".to_owned(),
            0x0303 => "TLS 1.2".to_owned(),
            TLS_1_3 => "TLS 1.3".to_owned(),
            other => format!("0x{other:04x}"),
        };
        fields.insert("version".to_owned(), version.into());
    }
}

/// Fields of a message of DNS.
pub fn dns(facts: &dns::Facts, is_query: bool) -> Map<String, Value> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut fields = Map::new();
    fields.insert("type".to_owned(), if is_query { "query" } else { "answer" }.into());
    fields.insert("id".to_owned(), facts.id.into());
    if let Some(question) = facts.questions.first() {
        fields.insert("rrname".to_owned(), text(&question.name).into());
        fields.insert("rrtype".to_owned(), dns_type(question.kind).into());
    }
    if !is_query {
        const CODES: [&str; 6] =
            ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"];
        let code = usize::from(facts.flags & 15);
        let code = CODES.get(code).map_or_else(|| format!("RCODE{code}"), |one| (*one).to_owned());
        fields.insert("rcode".to_owned(), code.into());
        let answers = facts.answers.iter().map(|answer| {
            json!({
                "rrname": text(&answer.name),
                "rrtype": dns_type(answer.kind),
                "ttl": answer.ttl,
                "rdata": text(&answer.data),
            })
        });
        fields.insert("answers".to_owned(), answers.collect());
    }
    fields
}

/// Name of a type of DNS.
fn dns_type(kind: u16) -> String {
    let name = match kind {
        1 => "A",
        2 => "NS",
        5 => "CNAME",
        6 => "SOA",
        12 => "PTR",
        15 => "MX",
        16 => "TXT",
        28 => "AAAA",
        33 => "SRV",
        41 => "OPT",
        43 => "DS",
        46 => "RRSIG",
        48 => "DNSKEY",
        64 => "SVCB",
        65 => "HTTPS",
        255 => "ANY",
        other => return format!("TYPE{other}"),
    };
    name.to_owned()
}

/// Fields of a flow that has ended.
pub fn flow(flow: &Flow, reason: &str) -> Map<String, Value> {
    let state = match (flow.is_over, flow.established) {
        (true, _) => "closed",
        (false, true) => "established",
        (false, false) => "new",
    };
    let value = json!({
        "pkts_toserver": flow.packets[0],
        "pkts_toclient": flow.packets[1],
        "bytes_toserver": flow.bytes[0],
        "bytes_toclient": flow.bytes[1],
        "start": timestamp(flow.start_ns),
        "end": timestamp(flow.end_ns),
        "age": flow.end_ns.saturating_sub(flow.start_ns) / 1_000_000_000,
        "state": state,
        "reason": reason,
    });
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// A record as one line, without its end.
pub fn record(
    flow: &Flow,
    time_ns: u64,
    to_server: bool,
    kind: &str,
    fields: Map<String, Value>,
) -> String {
    let (source, destination) =
        if to_server { (flow.client, flow.server) } else { (flow.server, flow.client) };
    let mut object = json!({
        "timestamp": timestamp(time_ns),
        "flow_id": flow.id,
        "event_type": kind,
        "src_ip": source.0.to_string(),
        "dest_ip": destination.0.to_string(),
        "proto": protocol(flow.protocol),
    });
    if (source.1, destination.1) != (0, 0) {
        object["src_port"] = source.1.into();
        object["dest_port"] = destination.1.into();
    }
    add_vlan(&mut object, flow.vlan);
    if let Some(application) = flow.parser.application() {
        object["app_proto"] = application.name().into();
    }
    object[kind] = Value::Object(fields);
    object.to_string()
}

/// Counters as one line, without its end.
pub fn stats(time_ns: u64, counters: &Counters, lost: u64) -> String {
    let counters = json!({
        "frames": counters.frames,
        "judged": counters.judged,
        "fragments": counters.fragments,
        "wrong_checksum": counters.damaged,
        "without_ip": counters.other,
        "lost_before": lost,
        "flows": counters.flows,
        "flows_forgotten": counters.forgotten,
        "messages": counters.messages,
        "bytes_not_judged": counters.beyond_bytes,
        "verified": counters.verified,
        "at_a_limit": counters.limited,
        "suspended": counters.suspended,
        "over_budget": counters.unjudged,
        "work": counters.work,
        "matches": counters.matches,
        "alerts": counters.alerts,
        "held_back": counters.held_back,
        "silent": counters.silent,
    });
    let object = json!({
        "timestamp": timestamp(time_ns),
        "event_type": "stats",
        "stats": counters,
    });
    object.to_string()
}

/// Adds the VLAN tags, if there are any.
/// A record with the bytes of a frame, in base 64, and its link type.
pub fn with_frame(mut record: String, frame: &Frame<'_>) -> String {
    let (bytes, link) = (STANDARD.encode(frame.data), frame.link.0);
    // Before the end of the object.
    record.truncate(record.len() - 1);
    record + &format!(",\"packet\":\"{bytes}\",\"packet_info\":{{\"linktype\":{link}}}}}")
}

fn add_vlan(object: &mut Value, vlan: u32) {
    match (vlan >> 12, vlan & 0xfff) {
        (0, 0) => {}
        (0, one) => object["vlan"] = json!([one]),
        (outer, inner) => object["vlan"] = json!([outer, inner]),
    }
}

fn protocol(number: u8) -> String {
    match number {
        1 => "ICMP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        58 => "IPv6-ICMP".to_owned(),
        132 => "SCTP".to_owned(),
        47 => "GRE".to_owned(),
        other => format!("{other:03}"),
    }
}

/// A time as `2009-11-24T21:27:09.534255+0000`, in UTC.
pub fn timestamp(time_ns: u64) -> String {
    let (seconds, micros) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000 / 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+0000")
}

/// Year, month and day of a day since 1970-01-01, counted in years that begin in March.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000000+0000");
        assert_eq!(timestamp(1_259_098_029_534_255_999), "2009-11-24T21:27:09.534255+0000");
        assert_eq!(timestamp(951_782_400_000_000_000), "2000-02-29T00:00:00.000000+0000");
        assert_eq!(timestamp(4_102_444_799_000_000_000), "2099-12-31T23:59:59.000000+0000");
    }
}
