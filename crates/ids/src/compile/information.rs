//! Options that say what a rule is, not what it matches.

use super::Builder;
use super::classes::class;
use super::number::within;
use crate::read::RawOption;

impl Builder {
    /// Reads an option of this file; false if it is none.
    pub(super) fn information_option(&mut self, option: &RawOption) -> Result<bool, String> {
        match &*option.name {
            "msg" => self.rule.message = message(&option.value)?,
            "sid" => {
                self.rule.sid = within(option.text()?, 1, u32::MAX.into())? as u32;
                self.has_sid = true;
            }
            "gid" => self.rule.gid = within(option.text()?, 1, u32::MAX.into())? as u32,
            "rev" => self.rule.rev = within(option.text()?, 0, u32::MAX.into())? as u32,
            "classtype" => {
                let name = option.text()?.trim();
                // A class of one's own has no text and the priority of rules without a class.
                let (text, priority) = class(name).unwrap_or(("", 3));
                self.rule.category = text.to_owned();
                if !self.seen.iter().any(|seen| seen == "priority") {
                    self.rule.priority = priority;
                }
            }
            "priority" => self.rule.priority = within(option.text()?, 1, 255)? as u8,
            "metadata" => {
                for pair in option.text()?.split(',').map(str::trim).filter(|pair| !pair.is_empty())
                {
                    let (name, value) = pair.split_once(char::is_whitespace).unwrap_or((pair, ""));
                    self.rule.metadata.push((name.to_owned(), value.trim().to_owned()));
                }
            }
            "reference" | "target" | "rem" | "service" | "requires" => {
                option.text()?;
                if option.name == "requires" {
                    return Err("depends on the version of another program".to_owned());
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The message without its quotation marks and escapes.
fn message(value: &[u8]) -> Result<String, String> {
    let text = String::from_utf8_lossy(value);
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let text = text.ok_or("expected a text in quotation marks")?;
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        out.push(if letter == '\\' {
            letters.next().ok_or("the text ends with a backslash")?
        } else {
            letter
        });
    }
    Ok(out)
}
