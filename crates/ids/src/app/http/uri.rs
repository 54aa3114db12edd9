//! URIs as Suricata normalises them: escapes decoded, backslashes as slashes, no repeated slashes, no dot segments. The
//! scheme and the host of an absolute URI are taken off.

use crate::transform::url_decode;

/// A URI that is read.
#[derive(Debug, PartialEq, Eq)]
pub struct Uri {
    /// Path, query and fragment.
    pub normalised: Vec<u8>,
    /// Host and port of an absolute URI.
    pub host: Option<Vec<u8>>,
}

/// Reads a URI; that of CONNECT is a host and a port only.
pub fn normalise(raw: &[u8], is_connect: bool) -> Uri {
    if is_connect {
        return Uri { normalised: raw.to_vec(), host: Some(raw.to_vec()) };
    }
    let (host, rest) = match scheme_end(raw) {
        Some(start) => {
            let len = raw[start..]
                .iter()
                .position(|byte| b"/?#".contains(byte))
                .unwrap_or(raw.len() - start);
            let authority = &raw[start..start + len];
            let user = authority.iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
            (Some(authority[user..].to_vec()), &raw[start + len..])
        }
        None => (None, raw),
    };
    let fragment = rest.iter().position(|byte| *byte == b'#').unwrap_or(rest.len());
    let (rest, fragment) = rest.split_at(fragment);
    let query = rest.iter().position(|byte| *byte == b'?').unwrap_or(rest.len());
    let (path, query) = rest.split_at(query);
    let mut normalised = path_of(path);
    if let Some(query) = query.strip_prefix(b"?") {
        normalised.push(b'?');
        normalised.extend(url_decode(query, false));
    }
    normalised.extend_from_slice(fragment);
    Uri { normalised, host }
}

/// Place after `http://`.
fn scheme_end(raw: &[u8]) -> Option<usize> {
    let at = memchr::memmem::find(raw, b"://")?;
    let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    (at > 0 && raw[..at].iter().all(is_scheme)).then_some(at + 3)
}

fn path_of(path: &[u8]) -> Vec<u8> {
    let mut decoded = decode_path(path);
    for byte in &mut decoded {
        if *byte == b'\\' {
            *byte = b'/';
        }
    }
    decoded.dedup_by(|next, before| *next == b'/' && *before == b'/');
    without_dots(&decoded)
}

/// Decodes `%41`, and `%u0041` as far as it means one byte.
fn decode_path(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((byte, after)) = rest.split_first() {
        let wide =
            after.strip_prefix(b"u").or_else(|| after.strip_prefix(b"U")).filter(|_| *byte == b'%');
        let value = wide
            .and_then(|wide| wide.get(..4))
            .and_then(|digits| u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match value {
            // What has no byte of its own becomes a question mark.
            Some(value) => {
                out.push(u8::try_from(value).unwrap_or(b'?'));
                rest = &after[5..];
            }
            None => {
                let len = if *byte == b'%' { rest.len().min(3) } else { 1 };
                out.extend(url_decode(&rest[..len], false).into_iter().take(1));
                let decoded =
                    *byte == b'%' && len == 3 && rest[1..3].iter().all(u8::is_ascii_hexdigit);
                rest = &rest[if decoded { 3 } else { 1 }..];
            }
        }
    }
    out
}

/// Removes `.` and `..` segments (RFC 3986, 5.2.4).
fn without_dots(path: &[u8]) -> Vec<u8> {
    if !path.contains(&b'.') {
        return path.to_vec();
    }
    let mut kept: Vec<&[u8]> = Vec::new();
    let rooted = path.first() == Some(&b'/');
    let segments: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let last = segments.len() - 1;
    for (number, segment) in segments.iter().enumerate().skip(usize::from(rooted)) {
        match *segment {
            b"." | b".." => {
                if *segment == b".." {
                    kept.pop();
                }
                if number == last {
                    kept.push(b"");
                }
            }
            other => kept.push(other),
        }
    }
    let mut out = if rooted { b"/".to_vec() } else { Vec::new() };
    out.extend(kept.join(&b'/'));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_normalised() {
        for (raw, normalised) in [
            ("/a/b.php?x=%41+b", "/a/b.php?x=A+b"),
            ("/a//b///c", "/a/b/c"),
            ("/a/./b/../c", "/a/c"),
            ("/../../etc", "/etc"),
            ("/a/..", "/"),
            ("/%2e%2e/%41%zz%4", "/A%zz%4"),
            ("/a\\b%5cc", "/a/b/c"),
            ("/%u0041%u4e00", "/A?"),
            ("http://u@Host:80/x?y", "/x?y"),
            ("http://host", ""),
            ("/q?u=http://x/", "/q?u=http://x/"),
            ("*", "*"),
            ("/a?b//../c#d", "/a?b//../c#d"),
        ] {
            let uri = normalise(raw.as_bytes(), false);
            assert_eq!(String::from_utf8_lossy(&uri.normalised), normalised, "{raw}");
        }
        assert_eq!(normalise(b"http://u@Host:80/x", false).host.as_deref(), Some(&b"Host:80"[..]));
        assert_eq!(normalise(b"/x", false).host, None);
    }
}
