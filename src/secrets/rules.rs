//! The rules: how credentials of known makers look.
//!
//! - A rule is found by a literal, and matches if what follows has the maker's length, alphabet and checksum, so far as the
//!   maker defines them.
//! - A match begins at a boundary: the character before it is not one that the rule's text may have. So a search is linear
//!   in the length of the text, whatever it contains.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// A set of characters.
pub(super) type CharClass = fn(u8) -> bool;

/// One kind of credential.
#[derive(Debug, Clone, Copy)]
pub(super) struct SecretRule {
    /// Its name in errors, log lines and redacted texts.
    pub(super) name: &'static str,
    /// What it is, with its article.
    pub(super) what: &'static str,
    /// The literals that it begins with.
    pub(super) literals: &'static [&'static str],
    /// The character before it is none of these.
    boundary: CharClass,
    /// The length of what follows the literal; `None` if it does not match.
    body: fn(&[u8]) -> Option<usize>,
    /// Whether a match is certain enough to refuse the event.
    pub(super) may_reject: bool,
    /// Whether it is refused in every topic once callers must authenticate.
    pub(super) always_rejected: bool,
}

impl SecretRule {
    /// The end of a match whose literal is at `start..literal_end`.
    pub(super) fn end_of(&self, text: &[u8], start: usize, literal_end: usize) -> Option<usize> {
        let is_inside =
            start.checked_sub(1).and_then(|before| text.get(before)).is_some_and(|&byte| (self.boundary)(byte));
        if is_inside {
            return None;
        }
        self.end_of_body(text, literal_end)
    }

    /// The same, whatever is before the literal.
    pub(super) fn end_of_body(&self, text: &[u8], literal_end: usize) -> Option<usize> {
        (self.body)(text.get(literal_end..)?).map(|bytes| literal_end + bytes)
    }
}

const fn rule(
    name: &'static str,
    what: &'static str,
    literals: &'static [&'static str],
    boundary: CharClass,
    body: fn(&[u8]) -> Option<usize>,
) -> SecretRule {
    SecretRule { name, what, literals, boundary, body, may_reject: true, always_rejected: false }
}

const fn always(rule: SecretRule) -> SecretRule {
    SecretRule { always_rejected: true, ..rule }
}

/// A member whose name says that its value is a secret.
pub(super) static MEMBER_NAME: SecretRule =
    SecretRule { may_reject: false, ..rule("member-name", "a member named like a secret", &[], alnum, |_| None) };
/// A text that looks random.
pub(super) static HIGH_ENTROPY: SecretRule =
    SecretRule { may_reject: false, ..rule("high-entropy", "a random text", &[], alnum, |_| None) };

/// The rules with literals.
pub(super) static RULES: &[SecretRule] = &[
    always(rule("private-key", "a private key", &["-----BEGIN"], |byte| byte == b'-', private_key)),
    always(rule("event-broker-key", "a key of this broker", &["ebk_"], alnum, broker_key)),
    rule("aws-access-key", "an AWS access key", &["AKIA", "ASIA"], alnum, |rest| run(rest, base32, 16, 16)),
    rule("github-token", "a GitHub token", &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"], alnum, checked_token),
    rule("github-token", "a GitHub token", &["github_pat_"], alnum, |rest| {
        parts(rest, &[(alnum, 22, 22), (alnum, 59, 59)], b'_')
    }),
    rule("gitlab-token", "a GitLab token", &["glpat-", "gldt-", "glrt-", "glptt-", "glcbt-"], word, |rest| {
        run(rest, word_or_dot, 20, 320)
    }),
    rule("slack-token", "a Slack token", &["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xapp-"], word, slack_token),
    rule("slack-webhook", "the URL of a Slack webhook", &["hooks.slack.com/services/"], alnum, |rest| {
        parts(rest, &[(alnum, 8, 12), (alnum, 8, 12), (alnum, 20, 32)], b'/')
    }),
    rule("stripe-key", "a Stripe key", &["sk_live_", "rk_live_"], alnum, |rest| run(rest, alnum, 16, 250)),
    rule("webhook-secret", "a signing secret of webhooks", &["whsec_", "whsk_"], alnum, |rest| {
        run(rest, base64_text, 24, 128)
    }),
    rule("google-api-key", "a Google API key", &["AIza"], word, |rest| run(rest, word, 35, 35)),
    rule("google-access-token", "a Google access token", &["ya29."], word, |rest| run(rest, word, 20, 2048)),
    rule("google-client-secret", "a Google client secret", &["GOCSPX-"], word, |rest| run(rest, word, 28, 28)),
    rule("sendgrid-key", "a SendGrid key", &["SG."], word, |rest| parts(rest, &[(word, 22, 22), (word, 43, 43)], b'.')),
    rule("npm-token", "an npm token", &["npm_"], alnum, checked_token),
    rule("pypi-token", "a PyPI token", &["pypi-AgE"], word, |rest| run(rest, word, 50, 1024)),
    rule("hugging-face-token", "a Hugging Face token", &["hf_"], alnum, |rest| run(rest, alnum, 34, 34)),
    rule("openai-key", "an OpenAI key", &["sk-proj-", "sk-svcacct-"], word, |rest| run(rest, word, 40, 256)),
    rule("anthropic-key", "an Anthropic key", &["sk-ant-"], word, |rest| run(rest, word, 80, 160)),
    rule("digitalocean-token", "a DigitalOcean token", &["dop_v1_", "doo_v1_"], alnum, |rest| run(rest, hex, 64, 64)),
    rule("shopify-token", "a Shopify token", &["shpat_", "shpss_"], alnum, |rest| run(rest, hex, 32, 32)),
    rule("vault-token", "a Vault token", &["hvs."], word, |rest| run(rest, word, 60, 256)),
    rule("docker-token", "a Docker token", &["dckr_pat_"], alnum, |rest| run(rest, word, 27, 27)),
    rule("grafana-token", "a Grafana token", &["glsa_"], alnum, |rest| {
        parts(rest, &[(alnum, 32, 32), (hex, 8, 8)], b'_')
    }),
    rule("age-key", "an age key", &["AGE-SECRET-KEY-1"], word, |rest| run(rest, alnum, 58, 58)),
    rule("azure-account-key", "an Azure account key", &["AccountKey="], alnum, |rest| run(rest, base64_text, 88, 88)),
    rule("json-web-token", "a JSON web token", &["eyJ"], word, json_web_token),
    rule("url-password", "a URL with a password", &["://"], |_| false, url_password),
];

pub(super) const fn alnum(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

const fn hex(byte: u8) -> bool {
    byte.is_ascii_hexdigit()
}

const fn base32(byte: u8) -> bool {
    matches!(byte, b'A'..=b'Z' | b'2'..=b'7')
}

pub(super) const fn word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

const fn word_or_dot(byte: u8) -> bool {
    word(byte) || byte == b'.'
}

const fn base64_text(byte: u8) -> bool {
    word(byte) || matches!(byte, b'+' | b'/' | b'=')
}

/// The length of the text of `class` at the beginning, if it is within these bounds. No such character follows it.
fn run(rest: &[u8], class: CharClass, min: usize, max: usize) -> Option<usize> {
    let bytes = rest.iter().take(max + 1).take_while(|byte| class(**byte)).count();
    let is_inside = class(b'_') && !class(b'+') || rest.get(bytes).is_none_or(|byte| !alnum(*byte));
    ((min..=max).contains(&bytes) && is_inside).then_some(bytes)
}

/// The length of several texts with a separator between them; each is of a class and within bounds.
fn parts(rest: &[u8], parts: &[(CharClass, usize, usize)], separator: u8) -> Option<usize> {
    let mut at = 0;
    for (index, (class, min, max)) in parts.iter().enumerate() {
        if index > 0 {
            rest.get(at).filter(|byte| **byte == separator)?;
            at += 1;
        }
        at += run(rest.get(at..)?, *class, *min, *max)?;
    }
    Some(at)
}

/// The head of a private key in PEM, up to the dashes after it.
fn private_key(rest: &[u8]) -> Option<usize> {
    let label =
        rest.iter().take(64).take_while(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || **byte == b' ');
    let bytes = label.count();
    let label = rest.get(..bytes)?;
    let is_private = label.ends_with(b" PRIVATE KEY") || label.ends_with(b" PRIVATE KEY BLOCK");
    (is_private && rest.get(bytes..)?.starts_with(b"-----")).then_some(bytes + 5)
}

/// `ebk_<id: 10>_<secret: 43>_<checksum: 6>`.
fn broker_key(rest: &[u8]) -> Option<usize> {
    let class_at = |from: usize, bytes: usize, class: CharClass| {
        rest.get(from..from + bytes).is_some_and(|part| part.iter().all(|byte| class(*byte)))
    };
    let is_separator = |at: usize| rest.get(at) == Some(&b'_');
    let fits = class_at(0, 10, alnum)
        && is_separator(10)
        && class_at(11, 43, word)
        && is_separator(54)
        && class_at(55, 6, word);
    (fits && rest.get(61).is_none_or(|byte| !alnum(*byte))).then_some(61)
}

/// 30 random characters, and their CRC-32 in base 62: the form of GitHub and npm.
fn checked_token(rest: &[u8]) -> Option<usize> {
    let bytes = run(rest, alnum, 36, 36)?;
    let (random, checksum) = rest.get(..bytes)?.split_at_checked(30)?;
    (checksum == base62(crc32(random))).then_some(bytes)
}

/// CRC-32 as in Ethernet and ZIP; it is computed for a few bytes of a candidate only.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// A number as six digits, letters in upper case before those in lower case.
pub(super) fn base62(mut number: u32) -> [u8; 6] {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut text = [b'0'; 6];
    for digit in text.iter_mut().rev() {
        *digit = DIGITS.get((number % 62) as usize).copied().unwrap_or(b'0');
        number /= 62;
    }
    text
}

/// Numbers and letters with dashes between them; the first part of every kind is a number.
fn slack_token(rest: &[u8]) -> Option<usize> {
    let bytes = run(rest, word, 20, 255)?;
    rest.first().filter(|byte| byte.is_ascii_digit()).map(|_| bytes)
}

/// Most bytes of the head of a token: some contain a chain of certificates, but those are not bearer tokens.
const TOKEN_HEAD_BYTES_MAX: usize = 1024;

/// A signed or an encrypted token; its head must be JSON that names an algorithm.
fn json_web_token(rest: &[u8]) -> Option<usize> {
    let head = rest.iter().take(TOKEN_HEAD_BYTES_MAX).take_while(|byte| word(**byte)).count();
    let encoded = [b"eyJ", rest.get(..head)?].concat();
    let parsed: serde_json::Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()?;
    parsed.get("alg")?.as_str()?;
    let body = rest.get(head..)?.iter().take_while(|byte| word_or_dot(**byte)).count();
    let dots = rest.get(head..head + body)?.iter().filter(|byte| **byte == b'.').count();
    (rest.get(head) == Some(&b'.') && body > 16 && dots >= 2).then_some(head + body)
}

/// Most bytes of a user with a password.
const USER_BYTES_MAX: usize = 512;

/// `user:password@`, unless the password is a placeholder.
fn url_password(rest: &[u8]) -> Option<usize> {
    let ends = |byte: u8| byte.is_ascii_whitespace() || byte.is_ascii_control() || b"/?#\"'<>\\`,;".contains(&byte);
    let authority = rest.iter().take(USER_BYTES_MAX).take_while(|byte| !ends(**byte)).count();
    let authority = rest.get(..authority)?;
    let at = authority.iter().rposition(|byte| *byte == b'@')?;
    let user = authority.get(..at)?;
    let colon = user.iter().position(|byte| *byte == b':')?;
    let password = std::str::from_utf8(user.get(colon + 1..)?).ok()?;
    (password.len() >= 3 && !is_placeholder(password)).then_some(at + 1)
}

/// Texts that stand for a secret in examples and in texts that are redacted already.
const PLACEHOLDERS: &[&str] = &[
    "pass", "passwd", "password", "pwd", "secret", "token", "changeme", "redacted", "none", "null", "true", "false",
    "unset",
];
/// Beginnings of references to a secret that is stored elsewhere, and of templates.
const REFERENCES: &[&str] =
    &["$", "{{", "<", "%", "[", "‹", "arn:", "projects/", "vault:", "env:", "ref:", "op://", "secret://"];

/// Whether a text is no secret, but stands for one.
pub(super) fn is_placeholder(text: &str) -> bool {
    let text = text.trim();
    let (first, lower) =
        (text.bytes().next(), text.get(..text.floor_char_boundary(64)).unwrap_or_default().to_ascii_lowercase());
    text.bytes().all(|byte| Some(byte) == first)
        || text.contains("***")
        || text.contains("...")
        || PLACEHOLDERS.contains(&lower.as_str())
        || REFERENCES.iter().any(|beginning| lower.starts_with(beginning))
        || lower.starts_with("your")
        || lower.starts_with("example")
}
