//! Compares what a command prints with what a page shows.
//!
//! In the page, `…` in a line is any text without a line end, and a line with nothing but `…` is any number of lines.
//! Spaces at the ends of lines do not count. Cost: lines times lines, at worst; outputs are short.

/// Describes the first difference; `None` if the texts agree.
pub fn difference(expected: &str, printed: &str) -> Option<String> {
    let trimmed = |text: &str| -> Vec<String> {
        text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect()
    };
    let (expected, printed) = (trimmed(expected), trimmed(printed));
    let reached = reached(&expected, &printed);
    if reached == expected.len() + 1 {
        return None;
    }
    let line = expected.get(reached).map_or("the end", String::as_str);
    Some(format!(
        "the page shows, at line {}: {line}\nprinted:\n{}",
        reached + 1,
        printed.join("\n")
    ))
}

/// Number of lines of the page that agree with the beginning of the output; one more if all of both agree.
fn reached(expected: &[String], printed: &[String]) -> usize {
    // The places in the output that the lines of the page so far can end at.
    let mut places = vec![0];
    for (number, line) in expected.iter().enumerate() {
        let next: Vec<usize> = match line.trim() == "…" {
            true => (places.first().copied().unwrap_or(0)..=printed.len()).collect(),
            false => {
                let after = places.iter().filter(|&&at| {
                    printed.get(at).is_some_and(|printed| line_agrees(line, printed))
                });
                after.map(|at| at + 1).collect()
            }
        };
        if next.is_empty() {
            return number;
        }
        places = next;
    }
    expected.len() + usize::from(places.contains(&printed.len()))
}

/// True if the parts between `…` are in the printed line, in their order, the first and last one at its ends.
fn line_agrees(expected: &str, printed: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = printed.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_and_places_that_are_left_open_agree() {
        for (expected, printed) in [
            ("a\nb\n", "a\nb\n"),
            ("a  \n", "a\n\n"),
            ("pid …, port …\n", "pid 17, port 21\n"),
            ("… ms\n", "17 ms\n"),
            ("…ms…\n", "17 ms, 18 ms\n"),
            ("a\n…\nz\n", "a\nb\nc\nz\n"),
            ("a\n…\nz\n", "a\nz\n"),
            ("…\nz\n…\n", "z\nz\n"),
            ("", ""),
        ] {
            assert_eq!(difference(expected, printed), None, "{expected:?} {printed:?}");
        }
    }

    #[test]
    fn the_first_line_that_differs_is_named() {
        let differs = |expected, printed| difference(expected, printed).unwrap();
        assert!(differs("a\nb\n", "a\nc\n").contains("at line 2: b"));
        assert!(differs("a\n", "a\nb\n").contains("at line 2: the end"));
        assert!(differs("a\nb\n", "a\n").contains("at line 2: b"));
        assert!(differs("a … c\n", "a b\n").contains("at line 1"));
        assert!(differs("… b\n", "a b c\n").contains("at line 1"));
        assert!(differs("a\n…\nz\n", "a\nb\n").contains("at line 3: z"));
        assert!(differs("\n", "x").contains("the end"));
    }
}
