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
pub const VERSIONS: &[u32] = &[2, 1];
/// First version in which a reader may be handed to another process of the service.
pub const HANDED_ON: u32 = 2;
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
        /// A graph in place of texts: nodes that open nothing, such as `(sampler,10) > (strsearch,abc)`. The reader
        /// gets the frames that its ends pass.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        graph: Option<String>,
    },
    /// Sends files for a graph, before `open`: up to 8 descriptors come with it. Answered by [`Response::Files`].
    Files {},
    /// Replaces the graph of the reader; nodes that both have stay, with their state. Answered by
    /// [`Response::Edited`].
    Graph {
        /// The graph.
        graph: String,
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
    /// Follows [`Response::Moved`], without an answer: requests before it that were not answered are void.
    Resume {},
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// The bytes are not a request, or it has an unknown field.
    pub fn from_bytes(bytes: &[u8]) -> Result<Request, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// True for an edit that is in force if the reader has these texts; false if that cannot be told, so that it is to
    /// be made again.
    pub(crate) fn is_in_force(&self, texts: &[u64]) -> bool {
        let Request::Edit { remove, add } = self else { return false };
        let added = |id: &u64| add.iter().any(|text| text.id == *id);
        let new = add.iter().map(|text| text.id).filter(|id| !remove.contains(id));
        let gone = remove.iter().copied().filter(|id| !added(id));
        let mut signs =
            new.map(|id| texts.contains(&id)).chain(gone.map(|id| !texts.contains(&id)));
        // An edit is made as a whole, so one sign is enough.
        signs.next().unwrap_or(false)
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
    /// Answer to [`Request::Files`].
    Files {
        /// Numbers of the files, for nodes `(tofd, NUMBER)`.
        numbers: Vec<u64>,
    },
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
    /// Another process of the service continues with this reader (version 2). Carries two descriptors, as `Opened`: the
    /// frames of the new index follow those of the old one. The reader sends [`Request::Resume`].
    Moved {
        /// Number of the first frame of the new index: of all frames that were put into the old one.
        from: u64,
        /// Numbers of the texts that the reader has there.
        #[serde(default)]
        texts: Vec<u64>,
        /// Number of edits that are in force.
        #[serde(default)]
        epoch: u64,
    },
    /// This process of the service stops, and has stored all frames that had arrived (version 2). Either another one
    /// continues ([`Response::Moved`]), or the connection is closed: then the service has ended, with these counts.
    Parting(Counts),
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
    /// True if a filter of the service's policy decides, too, which frames the reader gets.
    #[serde(default)]
    pub restricted: bool,
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
/// except those while it was paused, if no node of its graph has made frames; it has read or lost `accepted` of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Frames in its index.
    pub accepted: u64,
    /// Frames that no text accepted, in user space and in the kernel; 0, and `is_partial`, for a reader
    /// with a filter in its rule.
    pub rejected: u64,
    /// Frames that the service lost before it evaluated them.
    pub dropped: u64,
    /// Accepted frames that are too long for the buffer.
    pub refused: u64,
    /// Frames of `accepted` and `refused` that nodes of the reader's graph have made, so that they are no frames of the
    /// interface. Frames that nodes have taken for it count as rejected.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub made: u64,
    /// True if frames were rejected that `rejected` lacks: the kernel has not counted them, or they are beyond the
    /// filter of a rule.
    #[serde(default)]
    pub is_partial: bool,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
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
    fn an_edit_without_an_answer_is_in_force_if_its_texts_are() {
        let edit = |remove: &[u64], add: &[u64]| Request::Edit {
            remove: remove.to_vec(),
            add: add.iter().map(|&id| Text { id, text: String::new() }).collect(),
        };
        assert!(edit(&[1], &[2]).is_in_force(&[2]));
        assert!(!edit(&[1], &[2]).is_in_force(&[1]));
        assert!(edit(&[1], &[]).is_in_force(&[]));
        assert!(!edit(&[1], &[1]).is_in_force(&[1]), "nobody knows which text has the number");
        assert!(!Request::End {}.is_in_force(&[]));
    }

    #[test]
    fn every_message_reads_as_it_was_written() {
        let text = Text { id: 7, text: "host 10.0.0.1\nand udp \"\\".to_owned() };
        let requests = [
            Request::Hello { versions: vec![1], program: "p".into() },
            Request::Open { texts: vec![text.clone()], snaplen: 96, graph: None },
            Request::Graph { graph: "(sampler,2)".into() },
            Request::Edit { remove: vec![1, u64::MAX], add: vec![text] },
            Request::Pause {},
            Request::Start {},
            Request::Counts { read: 1, lost: 2 },
            Request::End {},
            Request::Resume {},
            Request::Files {},
        ];
        for request in requests {
            let bytes = serde_json::to_vec(&request).unwrap();
            assert!(!bytes.contains(&b'\n'), "a message is one line");
            assert_eq!(Request::from_bytes(&bytes).unwrap(), request);
        }
        let counts =
            Counts { accepted: 1, rejected: 2, dropped: 3, refused: 4, made: 1, is_partial: true };
        for response in [
            Response::Hello(Hello::default()),
            Response::Opened(Edited { epoch: 1, from: 0 }),
            Response::Ended { counts, reason: "x".into() },
            Response::Moved { from: 7, texts: vec![1, u64::MAX], epoch: 2 },
            Response::Parting(counts),
            Response::Error { message: "a\n  ^".into() },
        ] {
            let bytes = serde_json::to_vec(&response).unwrap();
            assert_eq!(serde_json::from_slice::<Response>(&bytes).unwrap(), response);
        }
    }
}
