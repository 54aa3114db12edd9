//! The messages: one JSON object each, with a field `request` or `response` that names the variant.
//!
//! A reader greets first. The service answers with the version that both speak, the interface, and the limits. Then the
//! reader [opens](Request::Open) its buffers, once, and [edits](Request::Edit) its texts as often as it likes. Requests
//! are answered in order. Before the service ends a connection in an orderly way it sends [`Response::Ended`].
//!
//! The service refuses a request with a field that it does not know, because ignoring it would change the meaning. A
//! reader skips fields of responses that it does not know.
//!
//! ```
//! # mod fyke { pub(crate) use fyke_serve as serve; }
//! use fyke::serve::message::Request;
//!
//! let edit = br#"{"request":"edit","remove":[1],"add":[{"id":2,"text":"tcp port 80"}]}"#;
//! let Request::Edit { remove, add } = Request::from_bytes(edit)? else { panic!("it is an edit") };
//! assert_eq!((remove, add[0].id), (vec![1], 2));
//! assert!(Request::from_bytes(br#"{"request":"edit","added":[]}"#).is_err());
//! # Ok::<(), serde_json::Error>(())
//! ```

use serde::{Deserialize, Serialize};

/// Versions of the protocol that this crate speaks, best first.
pub const VERSIONS: &[u32] = &[1];
/// Most characters of a reader's program name that are kept.
pub const MAX_PROGRAM: usize = 64;

/// A text with a number that the reader chose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// Number, unique among the texts of the reader.
    pub id: u64,
    /// Filter text in the pcap language; an empty one accepts every frame.
    pub text: String,
}

/// A request of a reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The greeting: answered by [`Response::Hello`].
    Hello {
        /// Versions that the reader speaks.
        versions: Vec<u32>,
        /// Name of the program, for people.
        #[serde(default)]
        program: String,
    },
    /// Makes the buffers: answered by [`Response::Opened`], with two descriptors.
    Open {
        /// First texts.
        #[serde(default)]
        texts: Vec<Text>,
        /// Most bytes of a frame that are stored for this reader; 0 = as many as it may have.
        #[serde(default)]
        snaplen: u32,
    },
    /// Removes texts and adds texts as one edit: answered by [`Response::Edited`].
    Edit {
        /// Numbers of texts to remove.
        #[serde(default)]
        remove: Vec<u64>,
        /// Texts to add.
        #[serde(default)]
        add: Vec<Text>,
    },
    /// Stores no frames until [`Request::Start`]; frames meanwhile are not counted: answered by [`Response::Edited`].
    Pause {},
    /// Stores frames again: answered by [`Response::Edited`].
    Start {},
    /// The counts: answered by [`Response::Counts`].
    Counts {
        /// Frames that the reader has read, for people that look at the service.
        #[serde(default)]
        read: u64,
        /// Frames that the reader knows to have lost.
        #[serde(default)]
        lost: u64,
    },
    /// Stores the frames that have already arrived, then none: answered by [`Response::Ended`].
    End {},
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// The bytes are not a request, or it has an unknown field.
    pub fn from_bytes(bytes: &[u8]) -> Result<Request, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

/// A response of the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case")]
pub enum Response {
    /// Answer to [`Request::Hello`].
    Hello(Hello),
    /// Answer to [`Request::Open`]. Its packet carries two descriptors: the packet buffer of the group and the index
    /// of this reader.
    Opened(Edited),
    /// Answer to [`Request::Edit`], [`Request::Pause`] and [`Request::Start`].
    Edited(Edited),
    /// Answer to [`Request::Counts`].
    Counts(Counts),
    /// No more frames follow those in the index. Answer to [`Request::End`]; also sent when the service ends, or ends
    /// the reader.
    Ended {
        /// The last counts.
        #[serde(flatten)]
        counts: Counts,
        /// The reason why the service ends this reader alone; empty otherwise.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// The request was not carried out and changed nothing.
    Error {
        /// The reason as text; may have several lines, with a caret under the position.
        message: String,
    },
}

/// The greeting of the service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of all further messages.
    pub version: u32,
    /// Name of the interface.
    pub interface: String,
    /// Number of its link type.
    pub link: u16,
    /// Netmask of its first IPv4 address, for texts that need it.
    #[serde(default)]
    pub netmask: u32,
    /// Most bytes of a frame.
    pub snaplen: u32,
    /// Group of the reader, for people.
    #[serde(default)]
    pub group: String,
    /// Limits of the reader.
    pub limits: Limits,
}

/// Limits of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Most texts at a time.
    pub texts: usize,
    /// Most bytes of one text.
    pub text_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { texts: 64, text_bytes: 1 << 20 }
    }
}

/// An edit in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edited {
    /// Number of edits of the service, of all readers, that are in force with this one.
    pub epoch: u64,
    /// Number of this reader's frames, accepted and rejected, that user space had evaluated before the edit: frame
    /// `from` and all later ones are evaluated under it.
    pub from: u64,
}

/// Counts of a reader since its first text. `accepted + rejected + dropped + refused` are all frames of the interface,
/// except those while it was paused; it has read or lost `accepted` of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Frames in its index.
    pub accepted: u64,
    /// Frames that no text accepted, in user space and in the kernel.
    pub rejected: u64,
    /// Frames that the service lost before it evaluated them.
    pub dropped: u64,
    /// Accepted frames that are too long for the buffer.
    pub refused: u64,
    /// True if the kernel has rejected frames without counting them, so that `rejected` lacks them.
    #[serde(default)]
    pub is_partial: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_and_unknown_fields_are_refused() {
        let hello = br#"{"request":"hello","versions":[1,2],"program":"x"}"#;
        let Ok(Request::Hello { versions, .. }) = Request::from_bytes(hello) else { panic!() };
        assert_eq!(versions, [1, 2]);
        assert_eq!(Request::from_bytes(br#"{"request":"end"}"#).unwrap(), Request::End {});
        for wrong in [
            &br#"{"request":"end","now":1}"#[..],
            br#"{"request":"open","text":"udp"}"#,
            br#"{"request":"edit","add":[{"id":1}]}"#,
            br#"{"request":"edit","add":[{"id":-1,"text":""}]}"#,
            br#"{"request":"nothing"}"#,
            br#"{"response":"ended"}"#,
            b"",
            b"\xff\xfe",
        ] {
            assert!(Request::from_bytes(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_message_reads_as_it_was_written() {
        let text = Text { id: 7, text: "host 10.0.0.1\nand udp \"\\".to_owned() };
        let requests = [
            Request::Hello { versions: vec![1], program: "p".into() },
            Request::Open { texts: vec![text.clone()], snaplen: 96 },
            Request::Edit { remove: vec![1, u64::MAX], add: vec![text] },
            Request::Pause {},
            Request::Start {},
            Request::Counts { read: 1, lost: 2 },
            Request::End {},
        ];
        for request in requests {
            let bytes = serde_json::to_vec(&request).unwrap();
            assert!(!bytes.contains(&b'\n'), "a message is one line");
            assert_eq!(Request::from_bytes(&bytes).unwrap(), request);
        }
        let counts = Counts { accepted: 1, rejected: 2, dropped: 3, refused: 4, is_partial: true };
        for response in [
            Response::Hello(Hello::default()),
            Response::Opened(Edited { epoch: 1, from: 0 }),
            Response::Ended { counts, reason: "x".into() },
            Response::Error { message: "a\n  ^".into() },
        ] {
            let bytes = serde_json::to_vec(&response).unwrap();
            assert_eq!(serde_json::from_slice::<Response>(&bytes).unwrap(), response);
        }
    }
}
