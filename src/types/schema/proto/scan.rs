//! The depth and size of a proto file, before the compiler, which recurses, reads it.

use contract::limits;

/// Whether the compiler may read a text; `Err` says why not. Comments and quoted texts do not count.
pub(super) fn check(text: &str) -> Result<(), &'static str> {
    let (mut depth, mut parts) = (0_usize, 0_usize);
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'{' | b'[' | b'(' | b'<' => depth += 1,
            b'}' | b']' | b')' | b'>' => depth = depth.saturating_sub(1),
            b'"' | b'\'' => rest = behind_quoted(rest, byte),
            b'/' if rest.first() == Some(&b'/') => rest = behind_first(rest, b"\n"),
            b'/' if rest.first() == Some(&b'*') => rest = behind_first(rest, b"*/"),
            _ => (),
        }
        parts += usize::from(matches!(byte, b'{' | b';' | b','));
        if depth > limits::PROTO_DEPTH_MAX {
            return Err("it is nested too deeply");
        }
        if parts > limits::PROTO_PARTS_MAX {
            return Err("it declares too much");
        }
    }
    Ok(())
}

fn behind_quoted(mut rest: &[u8], quote: u8) -> &[u8] {
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'\\' => rest = rest.get(1..).unwrap_or_default(),
            // A quoted text ends at the end of its line at the latest.
            b'\n' => return rest,
            _ if byte == quote => return rest,
            _ => (),
        }
    }
    rest
}

fn behind_first<'a>(rest: &'a [u8], end: &[u8]) -> &'a [u8] {
    let at = rest.windows(end.len()).position(|window| window == end);
    at.and_then(|at| rest.get(at + end.len()..)).unwrap_or_default()
}
