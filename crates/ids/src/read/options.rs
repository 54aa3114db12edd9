//! Options of a rule: `name;` or `name:value;`.

use super::MAX_OPTIONS;

/// An option as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawOption {
    /// Name, in lower case.
    pub name: String,
    /// Value without the spaces around it; empty if there is none. Escapes are left in it.
    pub value: Vec<u8>,
}

impl RawOption {
    /// The value as text.
    ///
    /// # Errors
    /// If it is no UTF-8.
    pub fn text(&self) -> Result<&str, String> {
        std::str::from_utf8(&self.value).map_err(|_| format!("{}: not UTF-8 text", self.name))
    }
}

/// Splits the text between the parentheses. A semicolon ends an option, unless a backslash precedes it or it is
/// between quotation marks.
pub fn split(body: &[u8]) -> Result<Vec<RawOption>, String> {
    let mut found = Vec::new();
    let (mut start, mut quoted, mut escaped) = (0, false, false);
    for (at, byte) in body.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b';' if !quoted => {
                push(&mut found, &body[start..at])?;
                start = at + 1;
            }
            _ => {}
        }
    }
    if quoted {
        return Err(format!("a quotation mark is not closed: {}", shown(&body[start..])));
    }
    let rest = body[start..].trim_ascii();
    if !rest.is_empty() {
        return Err(format!("\";\" is missing after {}", shown(rest)));
    }
    if found.is_empty() {
        return Err("no options".to_owned());
    }
    Ok(found)
}

fn push(found: &mut Vec<RawOption>, text: &[u8]) -> Result<(), String> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Err("an option is empty: two \";\" follow each other".to_owned());
    }
    if found.len() == MAX_OPTIONS {
        return Err(format!("more than {MAX_OPTIONS} options"));
    }
    let colon = text.iter().position(|byte| *byte == b':').unwrap_or(text.len());
    let name = text[..colon].trim_ascii();
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-".contains(byte);
    // Snort 3 writes some options with a space: `bufferlen 5`. No option of the others has a space in its name.
    if !name.iter().all(is_name) || name.is_empty() {
        return Err(format!("no option has the name {}", shown(name)));
    }
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let value = text.get(colon + 1..).unwrap_or_default().trim_ascii().to_vec();
    found.push(RawOption { name, value });
    Ok(())
}

/// A part of a rule for a message: at most 60 characters.
pub fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text.trim_ascii());
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("\"{}…\"", &text[..at]),
        None => format!("\"{text}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(body: &str) -> Vec<(String, String)> {
        let options = split(body.as_bytes()).unwrap();
        options.into_iter().map(|one| (one.name, String::from_utf8(one.value).unwrap())).collect()
    }

    #[test]
    fn semicolons_in_quotes_and_after_backslashes_do_not_end_an_option() {
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            names(r#"msg:"a;b" ; pcre:"/x\;\"y/"; nocase; Content : !"|3b|";"#),
            [
                own("msg", "\"a;b\""),
                own("pcre", r#""/x\;\"y/""#),
                own("nocase", ""),
                own("content", "!\"|3b|\"")
            ]
        );
    }

    #[test]
    fn wrong_options_are_refused_with_their_text() {
        let reason = |body: &str| split(body.as_bytes()).unwrap_err();
        assert!(reason("msg:\"a").contains("quotation mark"));
        assert!(reason("msg:\"a\"; nocase").contains("\"nocase\""));
        assert!(reason(";;").contains("empty"));
        assert!(reason("").contains("no options"));
        assert!(reason("a b c;").contains("a b c"));
        assert!(reason(&"x;".repeat(MAX_OPTIONS + 1)).contains("more than"));
    }
}
