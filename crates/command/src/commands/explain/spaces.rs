//! Part of `fyke explain` on the spaces that run a filter of a live capture, and why not a lower one.

use fyke_filter::Options;
use fyke_filters::classic_program;

/// The spaces of a text.
pub struct Spaces {
    /// Instructions of its program of classic BPF, or the reason why it has none.
    pub classic: Result<usize, String>,
    /// Reason why it runs in user space only.
    pub why_user: Option<&'static str>,
}

/// Finds the spaces of a text.
pub fn of(text: &str, options: &Options) -> Spaces {
    let options = Options { live: true, ..*options };
    let why_user = match () {
        () if options.reading == fyke_filter::Reading::Scoped => {
            Some("a scoped text needs all fragments")
        }
        () if text.trim().is_empty() => Some("no filter rejects a frame"),
        () => fyke_filter::compile(text, &options).err().map(|_| "it fits files only"),
    };
    let classic = classic_program([text], &options, options.snaplen);
    let classic = classic.map(|program| program.len()).map_err(|error| error.to_string());
    Spaces { classic, why_user }
}

impl Spaces {
    /// Describes the spaces in words.
    pub fn describe(&self) -> String {
        if let Some(why) = self.why_user {
            return format!("user space: {why}");
        }
        let without = "without the right to load that";
        match &self.classic {
            Ok(count) => format!(
                "user space, and the kernel as eBPF; {without}, as {count} instructions of classic BPF"
            ),
            Err(why) => {
                format!("user space, and the kernel as eBPF; {without}, not as classic BPF: {why}")
            }
        }
    }
}
