//! A minimal Rust lexer that separates code, comments and strings.

/// Kind of a piece of Rust text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Code.
    Code,
    /// A line or block comment with its marks.
    Comment,
    /// A string literal with its quotes.
    Text,
    /// A character literal with its quotes.
    Character,
}

/// The text with the content of comments, strings and character literals replaced by spaces. Line
/// ends and quotes stay, so line numbers stay the same.
pub fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (kind, piece) in pieces(text) {
        if kind == Kind::Code {
            out.push_str(piece);
            continue;
        }
        let length = piece.len();
        for (at, c) in piece.char_indices() {
            let quote = c == '"' && (at == 0 || at + 1 == length);
            out.push(if c == '\n' || quote { c } else { ' ' });
        }
    }
    out
}

/// The text in pieces of one kind each, in order; joined, they are the text.
pub fn pieces(text: &str) -> Vec<(Kind, &str)> {
    let chars: Vec<char> = text.chars().collect();
    let (mut found, mut rest, mut at, mut code) = (Vec::new(), text, 0, 0);
    let mut take = |kind: Kind, count: usize| {
        let end = rest.char_indices().nth(count).map_or(rest.len(), |(byte, _)| byte);
        let (piece, after) = rest.split_at(end);
        rest = after;
        if !piece.is_empty() {
            found.push((kind, piece));
        }
    };
    while at < chars.len() {
        let next = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => {
                Some((Kind::Comment, end_of_line(&chars, at)))
            }
            '/' if chars.get(at + 1) == Some(&'*') => {
                Some((Kind::Comment, end_of_block_comment(&chars, at)))
            }
            '"' => Some((Kind::Text, end_of_string(&chars, at))),
            'r' if !continues_a_word(&chars, at) => {
                end_of_raw_string(&chars, at).map(|end| (Kind::Text, end))
            }
            '\'' => end_of_char(&chars, at).map(|end| (Kind::Character, end)),
            _ => None,
        };
        match next {
            Some((kind, end)) => {
                let end = end.min(chars.len());
                take(Kind::Code, at - code);
                take(kind, end - at);
                (at, code) = (end, end);
            }
            None => at += 1,
        }
    }
    take(Kind::Code, at - code);
    found
}

/// True if the characters before `at` are part of a name. `b` and `c` may prefix a string; other
/// letters make the `r` part of a name.
fn continues_a_word(chars: &[char], at: usize) -> bool {
    let word = |c: &char| c.is_alphanumeric() || *c == '_';
    match at.checked_sub(1).map(|before| chars[before]) {
        Some('b' | 'c') => at.checked_sub(2).is_some_and(|before| word(&chars[before])),
        Some(before) => word(&before),
        None => false,
    }
}

fn end_of_line(chars: &[char], at: usize) -> usize {
    chars[at..].iter().position(|c| *c == '\n').map_or(chars.len(), |length| at + length)
}

fn end_of_block_comment(chars: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at.min(chars.len())
}

fn end_of_string(chars: &[char], at: usize) -> usize {
    let mut at = at + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

fn end_of_raw_string(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    let open = at + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let closes = |index: usize| {
        chars[index] == '"' && (1..=hashes).all(|hash| chars.get(index + hash) == Some(&'#'))
    };
    let close = (open + 1..chars.len()).find(|index| closes(*index));
    Some(close.map_or(chars.len(), |index| index + 1 + hashes))
}

/// The end of a character literal; `None` for a lifetime.
fn end_of_char(chars: &[char], at: usize) -> Option<usize> {
    match chars.get(at + 1)? {
        '\\' => {
            let close = chars.get(at + 3..)?.iter().position(|c| *c == '\'')?;
            Some(at + 3 + close + 1)
        }
        _ => (chars.get(at + 2) == Some(&'\'')).then_some(at + 3),
    }
}

/// Line numbers, from 1, on which `word` occurs as a whole word.
pub fn lines_with_word(code: &str, word: &str) -> Vec<usize> {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let has = |line: &str| {
        line.match_indices(word).any(|(at, _)| {
            !line[..at].ends_with(part_of_word)
                && !line[at + word.len()..].starts_with(part_of_word)
        })
    };
    code.lines().enumerate().filter(|(_, line)| has(line)).map(|(number, _)| number + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_go_and_code_stays() {
        let code = code_only("let a = \"unsafe\"; // unsafe\n/* unsafe /* x */ unsafe */ b();\n");
        assert!(!code.contains("unsafe"), "{code}");
        assert!(code.contains("let a = \"      \";") && code.contains("b();"), "{code}");
        assert_eq!(code.lines().count(), 2);
    }

    #[test]
    fn raw_strings_characters_and_lifetimes() {
        let code = code_only(
            r###"f(r#"a "dbg!(" "#, br"x", '"', '\'', '\u{1F}', b'"'); fn g<'a>(x: &'a str) {}"###,
        );
        assert!(!code.contains("dbg"), "{code}");
        assert!(code.contains("fn g<'a>(x: &'a str) {}"), "{code}");
    }

    #[test]
    fn a_name_that_ends_in_r_opens_no_raw_string() {
        assert!(code_only("for x in bar\"\" {} todo!()").contains("todo!()"));
        assert!(code_only("r#match + 1").contains("r#match + 1"));
    }

    #[test]
    fn unfinished_text_ends_with_the_file() {
        for text in ["\"abc", "r#\"abc", "/* abc", "'", "'\\", "\"\\"] {
            code_only(text);
        }
    }

    #[test]
    fn words_are_whole_words() {
        assert_eq!(lines_with_word("unsafe_code\nx unsafe {\nnot_unsafe", "unsafe"), [2]);
    }
}
