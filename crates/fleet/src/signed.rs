//! Texts with the signature of their author.
//!
//! A signature covers the kind of text, too, so that one kind is never taken for another.

use crate::hex;
use crate::keys::{Author, Trusted};
use crate::unaccepted::Unaccepted;
use serde::{Deserialize, Serialize};

/// A text as it is in a stream.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signed {
    author: String,
    /// The text; its name is that of the first kind.
    #[serde(rename = "edit")]
    text: String,
    signature: String,
}

/// The message of a text of a kind, with the signature of its author.
///
/// # Errors
/// It cannot be written as JSON.
pub fn seal(kind: &[u8], author: &Author, text: String) -> Result<Vec<u8>, String> {
    let signature = hex::of(&author.sign(&covered(kind, &text)));
    let signed = Signed { author: author.name().to_string(), text, signature };
    serde_json::to_vec(&signed).map_err(|error| error.to_string())
}

/// The author and the text of a message of a kind.
///
/// # Errors
/// It is no such message, its author is not trusted, or the signature is not the author's.
pub fn open(
    kind: &[u8],
    trusted: &Trusted,
    message: &[u8],
) -> Result<(String, String), Unaccepted> {
    let signed: Signed = serde_json::from_slice(message)
        .map_err(|error| format!("it is no signed message: {error}"))?;
    let signature = hex::read(&signed.signature).ok_or("the signature is not hexadecimal")?;
    let checked = trusted.check(&signed.author, &covered(kind, &signed.text), &signature);
    checked.map_err(|why| Unaccepted { why, for_key: true })?;
    Ok((signed.author, signed.text))
}

/// The text of a message; neither its author nor its signature is checked.
pub fn unchecked(message: &[u8]) -> Option<String> {
    serde_json::from_slice::<Signed>(message).ok().map(|signed| signed.text)
}

/// The bytes that a signature covers.
fn covered(kind: &[u8], text: &str) -> Vec<u8> {
    [kind, text.as_bytes()].concat()
}
