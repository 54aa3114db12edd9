//! Edits of filters on behalf of a client, and the refusals of commands that cannot do what a client asks for.

pub use fyke_filters::clients::{author, handle, label};

/// Refusal of a fyke that does not log its edits.
pub const NO_LOG: &str = "this fyke keeps no log of edits: names, times, batch, log and undo are for `fyke dump`, \
                          `track`, `demux`, `run` and `exec`";

/// Refusal of calls on passes where all passes are those of texts.
pub const NO_PASSES: &str = "the passes of this fyke are those of its texts: each frame is counted for a text, an \
                             endpoint or a class value, and a single pass has none; edit the texts (fyke ctl set, \
                             add, del), or edit passes of a `fyke dump`, `track`, `run` or `exec` beside it";

/// Refusal of a fyke that cannot be paused.
pub const NO_PAUSE: &str =
    "this fyke cannot be paused: pause and start are for `fyke dump`, `track`, `demux` and `run`";

/// Refusal of a fyke without rules.
pub const NO_RULES: &str = "this fyke has no rules of Snort and Suricata; `fyke ids` has";

/// Refusal of a fyke that keeps no frames.
pub const NO_FRAMES: &str = "this fyke keeps no frames: try, why and frames are for `fyke dump`, `track`, `demux` and \
                             `run`; the frames of `fyke exec` stay in the kernel. `fyke dump -r FILE TEXT` tries a \
                             text on a capture file";

/// A number of edits in words.
pub fn counted(edits: u64) -> String {
    if edits == 1 { "1 edit".to_owned() } else { format!("{edits} edits") }
}
