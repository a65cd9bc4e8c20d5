//! Tables of what is recognised and what is not. In samples `|` is left out, so that no scanner takes this file for a leak.

use super::guard::{InspectedParts, SecretGuard, suspected_payload};
use super::rules::{RULES, base62, crc32};
use super::walk::{FINDINGS_MAX, SecretFindings};
use super::{names, redact, scan};
use contract::{NewEvent, SecretPolicy};
use serde_json::{Value, json};
use std::fmt::Write;

fn sample(text: &str) -> String {
    text.replace('|', "")
}

/// The samples of every rule.
const SECRETS: &[(&str, &str)] = &[
    ("private-key", "-----BEGIN |RSA PRIVATE KEY-----\nMIIEow|IBAAKC\n-----END RSA PRIVATE KEY-----"),
    ("private-key", "-----BEGIN |PRIVATE KEY-----"),
    ("private-key", "-----BEGIN |OPENSSH PRIVATE KEY-----"),
    ("private-key", "-----BEGIN |PGP PRIVATE KEY BLOCK-----"),
    ("event-broker-key", "ebk_|a1B2c3D4e5_|abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP-_|0a1b2c"),
    ("aws-access-key", "AKIA|IOSFODNN7EXAMPLE"),
    ("aws-access-key", "the key is ASIA|Y34FZKBOKMUTVV7A."),
    ("github-token", "ghp_|zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq17"),
    ("github-token", "github_pat_|11ABCDEFG0abcdefghijkl_|abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456"),
    ("gitlab-token", "glpat-|x9YzAbCdEfGhIjKlMnOp"),
    ("slack-token", "xoxb-|123456789012-1234567890123-abcdefghijklmnopqrstuvwx"),
    ("slack-webhook", "https://hooks.slack.com/|services/T00000000/B00000000/abcdefghijklmnopqrstuvwx"),
    ("stripe-key", "sk_live_|4eC39HqLyjWDarjtT1zdp7dc"),
    ("stripe-key", "rk_live_|4eC39HqLyjWDarjtT1zdp7dc"),
    ("webhook-secret", "whsec_|MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("google-api-key", "AIza|SyA1234567890abcdefghijklmnopqrstuv"),
    ("google-access-token", "ya29.|a0AfH6SMBx1234567890abcdef"),
    ("google-client-secret", "GOCSPX-|abcdefghijklmnopqrstuvwxyz12"),
    ("sendgrid-key", "SG.|abcdefghijklmnopqrstuv.|abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQ"),
    ("npm-token", "npm_|zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq17"),
    ("hugging-face-token", "hf_|abcdefghijklmnopqrstuvwxyzABCDEFGH"),
    ("openai-key", "sk-proj-|abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUV"),
    ("digitalocean-token", "dop_v1_|0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
    ("shopify-token", "shpat_|0123456789abcdef0123456789abcdef"),
    ("docker-token", "dckr_pat_|abcdefghijklmnopqrstuvwxy12"),
    ("grafana-token", "glsa_|abcdefghijklmnopqrstuvwxyzABCDEF_|0a1b2c3d"),
    ("json-web-token", "Bearer eyJ|hbGciOiJIUzI1NiJ9.|eyJzdWIiOiIxIn0.|c2lnbmF0dXJlLW9mLXRoZS10b2tlbg"),
    ("url-password", "postgres://app:|s3cr3t-word@db.example/orders"),
    ("url-password", "redis://:|s3cr3t-word@cache.example:6379"),
];

fn rule_of(text: &str) -> Option<&'static str> {
    scan::find(text, 0).map(|found| found.rule.name)
}

#[test]
fn secrets_of_known_forms_are_recognised_wherever_they_are_in_a_text() {
    assert!(scan::is_built());
    for (rule, text) in SECRETS {
        let text = sample(text);
        assert_eq!(rule_of(&text), Some(*rule), "{text}");
        for around in [format!("see {text} there"), format!("é\"{text}\"ü"), format!("key={text}\nnext")] {
            assert_eq!(rule_of(&around), Some(*rule), "{around}");
        }
        let json = json!({"text": text}).to_string();
        assert!(scan::may_hold_secret(&json), "{json}");
    }
}

#[test]
fn texts_that_only_resemble_a_secret_are_no_secrets_of_a_rule() {
    for text in [
        "550e8400-e29b-41d4-a716-446655440000",
        "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "ghp_|zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq18",
        "npm_install_the_package",
        "AKIA",
        "AKIA|IOSFODNN7EXAMPLEX",
        "XAKIA|IOSFODNN7EXAMPLE",
        "AKIA|iosfodnn7example",
        "-----BEGIN CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----",
        "-----BEGIN",
        "eyJ|hbGciOiJIUzI1NiJ9",
        "eyJ|not.base64.at-all-or-anything",
        "eyJ|mb28iOiJiYXIifQ.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "https://example.com:8080/@team/page",
        "https://user@example.com/",
        "https://example.com/a:b@c",
        "postgres://user:password@localhost/db",
        "postgres://user:***@localhost/db",
        "postgres://user:${PASSWORD}@localhost/db",
        "sk_test_|4eC39HqLyjWDarjtT1zdp7dc",
        "MSG. SG. and so on",
        "whsec_ is a prefix",
        "task_live_now",
        "gts.hx.core.events.topic.v1~vendor.orders.v1",
    ] {
        let text = sample(text);
        assert_eq!(rule_of(&text), None, "{text}");
    }
}

/// The findings in an event with this `data`, as `rule pointer`.
fn found(data: &Value) -> Vec<String> {
    let mut findings = SecretFindings::default();
    let json = data.to_string();
    if scan::may_hold_secret(&json) {
        findings.add_json(&mut "/data".to_owned(), None, data);
    }
    findings.certain.iter().chain(&findings.suspected).map(|it| format!("{} {}", it.rule.name, it.pointer)).collect()
}

#[test]
fn a_finding_is_named_by_its_pointer() {
    let key = sample("AKIA|IOSFODNN7EXAMPLE");
    for (data, expected) in [
        (json!({"aws": {"key": key}}), vec!["aws-access-key /data/aws/key"]),
        (json!({"list": ["a", {"b/c~d": key}]}), vec!["aws-access-key /data/list/1/b~1c~0d"]),
        (json!({"a": key, "b": key}), vec!["aws-access-key /data/a", "aws-access-key /data/b"]),
        (
            json!({"note": format!("{key} and {}", sample("-----BEGIN |PRIVATE KEY-----"))}),
            vec!["private-key /data/note"],
        ),
    ] {
        assert_eq!(found(&data), expected);
    }
}

#[test]
fn a_member_name_that_is_a_secret_is_not_part_of_a_pointer() {
    let key = sample("AKIA|IOSFODNN7EXAMPLE");
    let data = json!({"keys": {key.clone(): {"password": "correct horse"}}});
    let found = found(&data);
    assert_eq!(found, ["aws-access-key /data/keys", "member-name /data/keys/password"]);
    assert!(found.iter().all(|text| !text.contains(&key)));
}

#[test]
fn member_names_flag_texts_that_may_be_secrets() {
    for name in [
        "password",
        "Password",
        "PASSWORD",
        "dbPassword",
        "user_password",
        "passwd",
        "pwd",
        "passphrase",
        "secret",
        "clientSecret",
        "client_secret",
        "CLIENT_SECRET",
        "api_key",
        "apiKey",
        "apikey",
        "x-api-key",
        "API_KEY",
        "private_key",
        "privateKey",
        "secretAccessKey",
        "token",
        "accessToken",
        "access_token",
        "refresh_token",
        "authorization",
        "Authorization",
    ] {
        assert!(names::is_secret_name(name), "{name}");
        assert_eq!(found(&json!({"a": {name: "correct horse"}})), [format!("member-name /data/a/{name}")]);
        let spaced = format!("{{\"{name}\" :\n \"correct horse\"}}");
        assert!(scan::may_hold_secret(&spaced), "{spaced}");
    }
    for (name, value) in [
        ("key", json!("correct horse")),
        ("pageToken", json!("correct horse")),
        ("passwordChangedAt", json!("2025-12-03T12:00:00Z")),
        ("secretary", json!("Ms. Miller")),
        ("organization", json!("ACME Incorporated")),
        ("token", json!(17)),
        ("password", json!(null)),
        ("password", json!("")),
        ("password", json!("********")),
        ("password", json!("<redacted>")),
        ("password", json!("${DB_PASSWORD}")),
        ("secret", json!("550e8400-e29b-41d4-a716-446655440000")),
        ("secret", json!("projects/shop/secrets/db/versions/3")),
        ("secret", json!("arn:aws:secretsmanager:eu-west-1:1:secret:db")),
    ] {
        assert_eq!(found(&json!({name: value})), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn random_texts_are_flagged_unless_they_are_identifiers_or_hashes() {
    let random = sample("f8Kq2|LmZx91TbVw7Rc3NpYd5Hs0Jg");
    assert_eq!(found(&json!({"value": random})), ["high-entropy /data/value"]);
    assert_eq!(found(&json!({"list": ["plain", format!("use {random} here")]})), ["high-entropy /data/list/1"]);
    for (name, value) in [
        ("id", "550e8400-e29b-41d4-a716-446655440000".to_owned()),
        ("id", "01JGXYZABCDEFGHJKMNPQRSTVW".to_owned()),
        ("commit", "da39a3ee5e6b4b0d3255bfef95601890afd80709".to_owned()),
        ("file", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855".to_owned()),
        ("contentHash", random.clone()),
        ("sha256", "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=".to_owned()),
        ("integrity", format!("sha384-{random}")),
        ("image", "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ".repeat(20)),
        ("name", "thisIsAVeryLongIdentifierOfAMethodV2".to_owned()),
        ("slug", "invoice-processing-department-north-2025".to_owned()),
        ("topic", "gts.hx.core.events.topic.v1~vendor.orders.created.v1".to_owned()),
        ("text", "The quick brown fox jumps over the lazy dog 12 times in 2025".to_owned()),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned()),
        ("padding", "Aa1".repeat(12)),
    ] {
        assert_eq!(found(&json!({name: value})), Vec::<String>::new(), "{name}: {value}");
    }
}

#[test]
fn escapes_hide_nothing() {
    let raw = |text: &str| (text.to_owned(), serde_json::from_str::<Value>(text).unwrap());
    for text in [
        sample(r#"{"a":"AK\u0049A|IOSFODNN7EXAMPLE"}"#),
        sample(r#"{"a":"postgres:\/\/app:|s3cr3t-word@db\/orders"}"#),
        r#"{"pass\u0077ord":"correct horse"}"#.to_owned(),
        sample(r#"{"a":"line\nAKIA|IOSFODNN7EXAMPLE\n"}"#),
    ] {
        let (json, value) = raw(&text);
        assert!(scan::may_hold_secret(&json), "{json}");
        let mut findings = SecretFindings::default();
        findings.add_json(&mut String::new(), None, &value);
        assert!(!findings.is_empty(), "{json}");
    }
}

#[test]
fn no_literal_hides_another() {
    let literals: Vec<_> = RULES.iter().flat_map(|rule| rule.literals).chain(names::NAME_ENDS).collect();
    for (index, one) in literals.iter().enumerate() {
        for (_, other) in literals.iter().enumerate().filter(|(at, _)| *at != index) {
            assert!(
                !one.starts_with(**other),
                "of {one} and {other}, which begin at the same place, only one is found"
            );
        }
    }
    // Overlapping ones are all found.
    let key = sample("AKIA|IOSFODNN7EXAMPLE");
    assert_eq!(rule_of(&format!("://{key}")), Some("aws-access-key"));
    assert_eq!(rule_of(&sample("------BEGIN |PRIVATE KEY-----")), None, "six dashes are no head");
    assert_eq!(rule_of(&format!("eyJ {key}")), Some("aws-access-key"));
}

#[test]
fn the_checksum_of_github_is_a_crc_in_base_62() {
    assert_eq!(&base62(crc32(b"zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ")), b"0mLq17");
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
}

#[test]
fn redaction_leaves_everything_but_the_secret() {
    for (text, expected) in [
        ("nothing to see", "nothing to see"),
        ("key AKIA|IOSFODNN7EXAMPLE is wrong", "key ‹aws-access-key› is wrong"),
        ("AKIA|IOSFODNN7EXAMPLE,AKIA|IOSFODNN7EXAMPLE", "‹aws-access-key›,‹aws-access-key›"),
        (
            "connect to postgres://app:|s3cr3t-word@db/orders failed",
            "connect to postgres‹url-password›db/orders failed",
        ),
        ("a -----BEGIN |PRIVATE KEY-----\nabc\n-----END PRIVATE KEY----- b", "a ‹private-key› b"),
        ("a -----BEGIN |PRIVATE KEY-----\nabc", "a ‹private-key›"),
        ("{\"password\":\"correct horse\"}", "{\"password\":\"correct horse\"}"),
    ] {
        assert_eq!(redact(&sample(text)), expected);
    }
    for (rule, text) in SECRETS {
        let redacted = redact(&sample(text)).into_owned();
        assert!(redacted.contains(&format!("‹{rule}›")), "{redacted}");
        assert_eq!(redact(&redacted), redacted, "a redacted text is not redacted again");
    }
}

fn event(data: &Value) -> NewEvent {
    let type_id = "shop.order.placed";
    serde_json::from_value(json!({"type": type_id, "source": "shop", "subject": "1", "data": data})).unwrap()
}

/// What a guard says: `refused: pointers` or `flagged: pointers`.
fn judged(guard: &SecretGuard, policy: SecretPolicy, event: &NewEvent) -> String {
    let data: Value = serde_json::from_str(event.data.get()).unwrap();
    let inspection = guard.inspect_event(policy, event, &data, InspectedParts::All);
    match inspection.refusal {
        Some(error) => {
            let text = format!("{error:?} {} {:?}", error.detail(), error.violations());
            assert!(!text.contains("IOSFODNN7"), "{text}");
            let pointers = error.violations().iter().map(|violation| violation.pointer.clone());
            format!("refused: {}", pointers.collect::<Vec<_>>().join(" "))
        }
        None => format!("flagged: {}", inspection.suspected.join(" ")),
    }
}

#[test]
fn the_policy_of_the_topic_decides() {
    use SecretPolicy::{Flag, Off, Reject};
    let certain = event(&json!({"key": sample("AKIA|IOSFODNN7EXAMPLE"), "password": "correct horse"}));
    let suspected = event(&json!({"password": "correct horse"}));
    let own = event(&json!({"pem": sample("-----BEGIN |PRIVATE KEY-----")}));
    let (open, closed) = (SecretGuard::new(false), SecretGuard::new(true));
    for (guard, policy, event, expected) in [
        (&open, Off, &certain, "flagged: "),
        (&open, Flag, &certain, "flagged: /data/key /data/password"),
        (&open, Reject, &certain, "refused: /data/key"),
        (&open, Off, &suspected, "flagged: "),
        (&open, Flag, &suspected, "flagged: /data/password"),
        (&open, Reject, &suspected, "flagged: /data/password"),
        (&open, Off, &own, "flagged: "),
        (&open, Flag, &own, "flagged: /data/pem"),
        // Private keys and the broker's own keys, once callers must authenticate.
        (&closed, Off, &own, "refused: /data/pem"),
        (&closed, Flag, &own, "refused: /data/pem"),
        (&closed, Off, &certain, "flagged: "),
        (&closed, Flag, &certain, "flagged: /data/key /data/password"),
    ] {
        assert_eq!(judged(guard, policy, event), expected, "{policy:?}");
    }
    assert_eq!(open.counted("member-name"), 3);
    assert_eq!(open.counted("aws-access-key"), 2);
}

#[test]
fn all_members_that_a_caller_fills_freely_are_inspected() {
    let key = sample("AKIA|IOSFODNN7EXAMPLE");
    let mut event = event(&json!({}));
    event.source.clone_from(&key);
    event.subject = Some(key.clone());
    event.context.insert("note".to_owned(), key.clone());
    event.context.insert("apiKey".to_owned(), "correct horse".to_owned());
    let guard = SecretGuard::new(false);
    let expected = "flagged: /source /subject /context/note /context/apiKey";
    assert_eq!(judged(&guard, SecretPolicy::Flag, &event), expected);
    event.context.insert(key, "value".to_owned());
    assert_eq!(judged(&guard, SecretPolicy::Reject, &event), "refused: /source /subject /context /context/note");
    let nothing = guard.inspect_event(SecretPolicy::Reject, &event, &json!({}), InspectedParts::None);
    assert!(nothing.refusal.is_none() && nothing.suspected.is_empty());
}

#[test]
fn a_payload_need_not_be_strict_json() {
    let key = sample("AKIA|IOSFODNN7EXAMPLE");
    assert_eq!(suspected_payload(&json!({"a": [key]}).to_string()), ["/payload/a/0"]);
    assert_eq!(suspected_payload(&json!(key).to_string()), ["/payload"]);
    assert_eq!(suspected_payload(&format!(r#"{{"a":"{key}","a":1}}"#)), ["/payload"]);
    assert_eq!(suspected_payload(r#"{"a":1}"#), Vec::<String>::new());
}

#[test]
fn findings_are_bounded_and_a_certain_one_is_never_left_out() {
    let many: Vec<_> = (0..1000).map(|_| json!({"password": "correct horse"})).collect();
    let data = json!({"a": many, "z": sample("AKIA|IOSFODNN7EXAMPLE")});
    let found = found(&data);
    assert_eq!(found.len(), FINDINGS_MAX + 1);
    assert_eq!(found[0], "aws-access-key /data/z");
    let long = json!({"x".repeat(5000): {"password": "correct horse"}});
    assert_eq!(self::found(&long), ["member-name /data/password"]);
}

#[test]
fn hostile_texts_are_searched_in_linear_time() {
    // If each beginning were searched to the end of the text, this would take minutes.
    for rule in RULES {
        for literal in rule.literals {
            for filling in ["", "-", "a1"] {
                let mut text = String::with_capacity(1 << 16);
                while text.len() < 1 << 16 {
                    write!(text, "{literal}{filling}").unwrap();
                }
                let _ = redact(&text);
                let _ = scan::may_hold_secret(&text);
            }
        }
    }
}
