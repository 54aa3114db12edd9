//! Content of a line; each field names the option of tcpdump that sets it.

use crate::Services;

/// Options of a printer.
#[derive(Debug, Clone)]
pub struct PrintOptions {
    /// `-e`: the link header, tags included.
    pub link_header: bool,
    /// `-q`: fewer details of the protocols.
    pub quiet: bool,
    /// `-v`, `-vv`, `-vvv`: more details of the protocols, over several lines.
    pub verbose: u8,
    /// `-x`, `-X`, `-A`: dump of the bytes.
    pub hex: Hex,
    /// `-xx`, `-XX`: the dump starts with the link header.
    pub hex_link_header: bool,
    /// `-t` to `-ttttt`: the time at the start of the line.
    pub time: TimeStyle,
    /// Nine digits of a second instead of six.
    pub nanoseconds: bool,
    /// Difference of local time from UTC, in seconds, at a time in seconds since 1970.
    pub local_offset_s: fn(i64) -> i32,
    /// Name of an interface by its index, for captures that record the interface of a frame.
    pub interface_name: fn(u32) -> Option<String>,
    /// `-S`: TCP sequence numbers as they are, not relative to the start of the conversation. The
    /// printer remembers at least the last 65,536 conversations; older ones count from their next
    /// frame.
    pub absolute_sequence: bool,
    /// `-#`: the number of the frame at the start of the line.
    pub number: bool,
    /// `--lengths`: the captured and the original length of the frame, before the time.
    pub lengths: bool,
    /// Names of ports; `None` (`-n`) prints numbers.
    pub services: Option<Services>,
    /// Colours by protocol and flags, as escape sequences of a terminal around the text after the
    /// time.
    pub color: bool,
    /// Exactly tcpdump's lines: packets in tunnels that tcpdump does not follow are not shown.
    pub like_tcpdump: bool,
}

impl Default for PrintOptions {
    /// As `tcpdump -n` in UTC.
    fn default() -> Self {
        PrintOptions {
            link_header: false,
            quiet: false,
            verbose: 0,
            hex: Hex::None,
            hex_link_header: false,
            time: TimeStyle::Clock,
            nanoseconds: false,
            local_offset_s: |_| 0,
            interface_name: |_| None,
            absolute_sequence: false,
            number: false,
            lengths: false,
            services: None,
            color: false,
            like_tcpdump: false,
        }
    }
}

/// Dump of a frame's bytes after its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Hex {
    /// No dump.
    #[default]
    None,
    /// `-x`: hexadecimal.
    Bytes,
    /// `-X`: hexadecimal and text.
    BytesAndText,
    /// `-A`: text.
    Text,
}

/// Format of the time at the start of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TimeStyle {
    /// Time of day.
    #[default]
    Clock,
    /// `-t`: none.
    None,
    /// `-tt`: seconds since 1970.
    Epoch,
    /// `-ttt`: since the frame before.
    Delta,
    /// `-tttt`: date and time of day.
    Date,
    /// `-ttttt`: since the first frame.
    SinceFirst,
}
