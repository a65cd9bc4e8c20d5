//! The tokens of a CEL text: names, numbers, texts, operators.
//!
//! - One pass, linear in the text.
//! - An error has a place and a reason, and never quotes the text.

/// One token of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CelToken<'s> {
    /// A name or a reserved word (`true`, `in`).
    Name(&'s str),
    /// The digits of an integer; its sign is an operator.
    Int(u64),
    /// `12u`.
    UInt(u64),
    /// A number with a fraction or an exponent.
    Double(f64),
    /// A text, its escapes resolved.
    Text(String),
    /// An operator or a bracket.
    Sign(&'static str),
}

/// What is wrong with an expression, and at which byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CelError {
    /// The byte.
    pub(super) at: usize,
    /// The reason, and what to do about it.
    pub(super) why: &'static str,
}

impl CelError {
    /// An error at byte `at`.
    pub(super) const fn new(at: usize, why: &'static str) -> Self {
        Self { at, why }
    }
}

/// Splits `source` into tokens, each with the byte at which it starts.
pub(super) fn tokens(source: &str) -> Result<Vec<(CelToken<'_>, usize)>, CelError> {
    let mut cut = CelLexer { source, at: 0 };
    let mut words = Vec::new();
    while let Some(start) = cut.next_start() {
        words.push((cut.next_token()?, start));
    }
    Ok(words)
}

/// Longer ones first, so that `<=` is not read as `<`.
const SIGNS: [&str; 24] = [
    "||", "&&", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")", "[", "]",
    "{", "}",
];

const BAD_NUMBER: &str = "the number is not readable or out of range";
const BAD_ESCAPE: &str = "the escape in this text is unknown";
const OPEN_TEXT: &str = "the text has no closing quote";

/// The state of the tokeniser.
struct CelLexer<'s> {
    source: &'s str,
    at: usize,
}

impl<'s> CelLexer<'s> {
    fn rest(&self) -> &'s str {
        self.source.get(self.at..).unwrap_or_default()
    }

    /// Skips blanks and comments; `None` at the end.
    fn next_start(&mut self) -> Option<usize> {
        loop {
            self.eat_while(|c| matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{c}'));
            if !self.rest().starts_with("//") {
                break;
            }
            self.eat_while(|c| c != '\n');
        }
        (!self.rest().is_empty()).then_some(self.at)
    }

    fn next_token(&mut self) -> Result<CelToken<'s>, CelError> {
        let rest = self.rest();
        let mut ahead = rest.chars();
        let (first, second) = (ahead.next().unwrap_or_default(), ahead.next().unwrap_or_default());
        if matches!(first, '"' | '\'') {
            return self.text(false);
        }
        if matches!(first, 'r' | 'R') && matches!(second, '"' | '\'') {
            self.at += 1;
            return self.text(true);
        }
        if first.is_ascii_digit() || first == '.' && second.is_ascii_digit() {
            return self.number();
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let start = self.at;
            let name = self.eat_while(|c| c.is_ascii_alphanumeric() || c == '_');
            let is_bytes = matches!(name, "b" | "B" | "br" | "rb" | "bR" | "Rb" | "Br" | "rB" | "BR" | "RB");
            if is_bytes && self.rest().starts_with(['"', '\'']) {
                return Err(CelError::new(start, "an event has no bytes; use a text"));
            }
            return Ok(CelToken::Name(name));
        }
        self.sign()
    }

    fn sign(&mut self) -> Result<CelToken<'s>, CelError> {
        let sign = SIGNS.iter().find(|sign| self.rest().starts_with(**sign));
        let sign = sign.ok_or_else(|| self.fault("this character is not valid here"))?;
        self.at += sign.len();
        Ok(CelToken::Sign(sign))
    }

    fn number(&mut self) -> Result<CelToken<'s>, CelError> {
        let start = self.at;
        let fault = CelError::new(start, BAD_NUMBER);
        if self.rest().starts_with("0x") {
            self.at += 2;
            let digits = self.eat_while(|c| c.is_ascii_hexdigit());
            return self.integer(u64::from_str_radix(digits, 16).map_err(|_| fault)?);
        }
        self.eat_while(|c| c.is_ascii_digit());
        let mut whole = true;
        let fraction = self.rest().strip_prefix('.');
        if fraction.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            self.at += 1;
            self.eat_while(|c| c.is_ascii_digit());
            whole = false;
        }
        if self.rest().starts_with(['e', 'E']) {
            self.at += 1;
            self.at += usize::from(self.rest().starts_with(['+', '-']));
            self.eat_while(|c| c.is_ascii_digit());
            whole = false;
        }
        let written = self.source.get(start..self.at).unwrap_or_default();
        if whole {
            return self.integer(written.parse().map_err(|_| fault)?);
        }
        written.parse().ok().filter(|number: &f64| number.is_finite()).map(CelToken::Double).ok_or(fault)
    }

    fn integer(&mut self, digits: u64) -> Result<CelToken<'s>, CelError> {
        let unsigned = self.rest().starts_with(['u', 'U']);
        self.at += usize::from(unsigned);
        if self.rest().starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            return Err(self.fault(BAD_NUMBER));
        }
        Ok(if unsigned { CelToken::UInt(digits) } else { CelToken::Int(digits) })
    }

    fn text(&mut self, raw: bool) -> Result<CelToken<'s>, CelError> {
        let open = CelError::new(self.at, OPEN_TEXT);
        let rest = self.rest();
        let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| rest.starts_with(quote)).ok_or(open)?;
        self.at += quote.len();
        let mut text = String::new();
        loop {
            if self.rest().starts_with(quote) {
                self.at += quote.len();
                return Ok(CelToken::Text(text));
            }
            match self.next_char().ok_or(open)? {
                '\n' | '\r' if quote.len() == 1 => return Err(open),
                '\\' if !raw => text.push(self.escape()?),
                other => text.push(other),
            }
        }
    }

    /// The character of an escape, after its backslash.
    fn escape(&mut self) -> Result<char, CelError> {
        let fault = self.fault(BAD_ESCAPE);
        let plain = match self.next_char().ok_or(fault)? {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            same @ ('\\' | '\'' | '"' | '`' | '?') => same,
            'x' | 'X' => return self.code(2, 16).ok_or(fault),
            'u' => return self.code(4, 16).ok_or(fault),
            'U' => return self.code(8, 16).ok_or(fault),
            '0'..='3' => {
                self.at -= 1;
                return self.code(3, 8).ok_or(fault);
            }
            _ => return Err(fault),
        };
        Ok(plain)
    }

    fn code(&mut self, digits: usize, radix: u32) -> Option<char> {
        let written = self.rest().get(..digits).filter(|written| written.chars().all(|c| c.is_digit(radix)))?;
        self.at += digits;
        char::from_u32(u32::from_str_radix(written, radix).ok()?)
    }

    fn next_char(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn eat_while(&mut self, wanted: impl Fn(char) -> bool) -> &'s str {
        let rest = self.rest();
        let end = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    fn fault(&self, why: &'static str) -> CelError {
        CelError::new(self.at, why)
    }
}
