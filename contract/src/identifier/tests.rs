//! What parses, what matches, and where that differs from the strict grammar.

use super::code::{NEITHER, ONE_PART, WRONG_CASE};
use super::gts::{NO_VERSION, WRONG_COUNT, WRONG_NAME, WRONG_STAR};
use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

const UUID: &str = "7a1d2f34-5678-49ab-9012-abcdef123456";

fn id(text: &str) -> Identifier {
    Identifier::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn pattern(text: &str) -> IdPattern {
    IdPattern::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn every_id_of_the_seed_is_one_and_knows_its_profile() {
    for (text, profile) in [
        ("gts.hx.core.events.topic.v1~", IdentifierProfile::Strict),
        ("gts.hx.core.events.event_type.v1~", IdentifierProfile::Strict),
        ("gts.hx.core.events.event.v1~", IdentifierProfile::Strict),
        ("gts.mycompany.app.entities.order.v1~", IdentifierProfile::Strict),
        ("gts.mycompany.app.events.user_updated.v1~", IdentifierProfile::Strict),
        ("gts.hx.core.events.topic.v1~vendor.users.v1", IdentifierProfile::Relaxed),
        ("gts.hx.core.events.topic.v1~vendor.orders.v1", IdentifierProfile::Relaxed),
        ("gts.hyperspot.core.events.type.v1~vendor.tenants.tenant_created.v1", IdentifierProfile::Relaxed),
        ("gts.hyperspot.core.events.type.v1~vendor.tenants.tenant_updated.v1", IdentifierProfile::Relaxed),
        ("gts.hx.core.events.event.v1~vendor.users.user_registered.v1", IdentifierProfile::Relaxed),
        ("gts.hx.core.events.event.v1~vendor.orders.order_placed.v1", IdentifierProfile::Relaxed),
        ("gts.vendor.tenants.tenant.v1~", IdentifierProfile::Relaxed),
        ("gts.vendor.tenants.tenant.v1", IdentifierProfile::Relaxed),
    ] {
        assert_eq!(id(text).profile(), profile, "{text}");
        assert_eq!(id(text).to_string(), text);
    }
}

#[test]
fn ids_at_the_edge_of_the_grammar_are_taken() {
    for text in [
        "gts.vendor.users.v1",
        "gts.a.b.c.d.v0.0~",
        "gts.a.b.c.d.v4294967295.4294967295~",
        "gts.v123.p.n.t.v1~",
        "gts.v1.v2.v3.v4.v5~",
        "gts._._._._.v1~",
        "gts.a.b.c.d.v1~a.b.c.d.v2~a.b.c.d.v3",
        &format!("gts.a.b.c.d.v1~{UUID}"),
        &format!("gts.a.b.v1~{UUID}"),
        &format!("gts.{}.b.v1~", "a".repeat(limits::ID_BYTES_MAX - 10)),
    ] {
        assert_eq!(id(text).as_str(), text);
        assert_eq!(pattern(text).as_str(), text);
    }
}

#[test]
fn what_is_not_an_id_is_refused_without_being_quoted() {
    for (text, reason) in [
        ("", NEITHER),
        ("gts", ONE_PART),
        (" gts.vendor.users.v1", NEITHER),
        ("GTS.vendor.users.v1", WRONG_CASE),
        ("gts.", NO_VERSION),
        ("gts.~", NO_VERSION),
        ("gts.v1", NO_VERSION),
        ("gts.a.b.c.d", NO_VERSION),
        ("gts.a.b.c.d.v01", NO_VERSION),
        ("gts.a.b.c.d.v1.02", NO_VERSION),
        ("gts.a.b.c.d.v1.2.3", NO_VERSION),
        ("gts.a.b.c.d.v", NO_VERSION),
        ("gts.a.b.c.d.v+1", NO_VERSION),
        ("gts.a.b.c.d.v4294967296", NO_VERSION),
        ("gts.a.b.c.d.v1~~", NO_VERSION),
        ("gts.a.b.c.d.v1~~a.b.c.d.v1", NO_VERSION),
        ("gts.a.b.c.d.v1~ ", NO_VERSION),
        ("gts.x.v1~", WRONG_COUNT),
        ("gts.a.b.c.d.e.v1~", WRONG_COUNT),
        ("gts.Vendor.users.v1", WRONG_NAME),
        ("gts.my-vendor.users.v1", WRONG_NAME),
        ("gts.1a.users.v1", WRONG_NAME),
        ("gts.a..b.v1", WRONG_NAME),
        ("gts..a.b.v1", WRONG_NAME),
        ("gts.a.*.v1", WRONG_NAME),
        ("gts.ä.b.v1", WRONG_NAME),
        ("gts.7a1d2f34-5678-49ab-9012-abcdef123456", NO_VERSION),
        ("gts.a.b.v1~7A1D2F34-5678-49AB-9012-ABCDEF123456", NO_VERSION),
        ("gts.a.b.v1~7a1d2f34-5678-49ab-9012-abcdef123456~", NO_VERSION),
    ] {
        let error = Identifier::parse(text).expect_err(text);
        assert_eq!((error.kind(), error.detail()), (Kind::InvalidType, reason), "{text}");
    }
    let error = Identifier::parse(&format!("gts.{}.b.v1", "a".repeat(limits::ID_BYTES_MAX))).unwrap_err();
    assert_eq!(error.detail(), "A GTS identifier has at most 512 bytes.");
}

#[test]
fn types_compare_without_the_trailing_tilde_and_topics_with_it() {
    let texts = ["gts.a.b.v1~", "gts.a.b.v1"];
    assert_eq!(texts.map(|text| EventTypeId::parse(text).unwrap()).into_iter().collect::<HashSet<_>>().len(), 1);
    assert_eq!(texts.map(|text| SubjectTypeId::parse(text).unwrap()).into_iter().collect::<HashSet<_>>().len(), 1);
    let topics = texts.map(|text| TopicId::parse(text).unwrap()).into_iter().collect::<HashSet<_>>();
    assert_eq!(topics.len(), 2);
    assert!(topics.contains("gts.a.b.v1~") && !topics.contains("gts.a.b.v2"));
    let event_type = EventTypeId::parse("gts.a.b.v1~").unwrap();
    assert_eq!((event_type.as_str(), event_type.key()), ("gts.a.b.v1~", "gts.a.b.v1"));
    assert!(event_type.as_identifier().is_type());
    assert_eq!(format!("{event_type:?}"), r#"EventTypeId("gts.a.b.v1~")"#);
}

#[test]
fn ids_travel_as_text() {
    let topic: TopicId = serde_json::from_str(r#""gts.\u0061.b.v1~""#).unwrap();
    assert_eq!(serde_json::to_string(&topic).unwrap(), r#""gts.a.b.v1~""#);
    let error = serde_json::from_str::<EventTypeId>(r#""gts.A.b.v1""#).unwrap_err();
    // The code goes along, so that whoever parses a request can tell this refusal from others.
    let text = error.to_string();
    let (kind, detail) = Kind::of_text(&text).unwrap();
    assert!(kind == Kind::InvalidType && detail.starts_with(WRONG_NAME), "{error}");
    assert_eq!(serde_json::to_string(&IdentifierProfile::Strict).unwrap(), r#""strict""#);
}

#[test]
fn a_pattern_selects() {
    for (wanted, text, selected) in [
        // The whole tree, and no more of it than is written.
        ("gts.*", "gts.a.b.v1", true),
        ("gts.a.*", "gts.a.b.v1", true),
        ("gts.a.*", "gts.ab.b.v1", false),
        ("gts.a.b.*", "gts.a.b.v1", true),
        ("gts.vendor.tenants.*", "gts.vendor.tenants.tenant.v1~", true),
        ("gts.x.topic.v1~vendor.users.*", "gts.x.topic.v1~vendor.users.v1", true),
        ("gts.x.topic.v1~vendor.users.*", "gts.x.topic.v1~vendor.orders.v1", false),
        ("gts.x.topic.v1~vendor.*", "gts.x.topic.v1~", false),
        // A type and what is derived from it; without the `~` only itself.
        ("gts.a.b.v1~", "gts.a.b.v1~", true),
        ("gts.a.b.v1~", "gts.a.b.v1", true),
        ("gts.a.b.v1~", "gts.a.b.v1~c.d.v1~e.f.v1", true),
        ("gts.a.b.v1~*", "gts.a.b.v1~", true),
        ("gts.a.b.v1~*", "gts.a.b.v1", true),
        ("gts.a.b.v1~*", "gts.a.b.v1~c.d.v1", true),
        ("gts.a.b.v1", "gts.a.b.v1~", true),
        ("gts.a.b.v1", "gts.a.b.v1~c.d.v1", false),
        ("gts.a.b.v1~c.d.v1", "gts.a.b.v1~c.d.v1~", true),
        ("gts.a.b.v1~c.d.v1", "gts.a.b.v1", false),
        ("gts.a.b.v1~", "gts.a.b.v1~7a1d2f34-5678-49ab-9012-abcdef123456", true),
        // Versions.
        ("gts.a.b.v1~", "gts.a.b.v1.7~c.d.v1", true),
        ("gts.a.b.v1.7~", "gts.a.b.v1.7~c.d.v1", true),
        ("gts.a.b.v1.7~", "gts.a.b.v1.70~", false),
        ("gts.a.b.v1.7~", "gts.a.b.v1~", false),
        ("gts.a.b.v1~", "gts.a.b.v10~", false),
        ("gts.a.b.v1", "gts.a.b.v1.c.v2", false),
        ("gts.a.b.v1.*", "gts.a.b.v1.7~", true),
        ("gts.a.b.v1.*", "gts.a.b.v1~", false),
        ("gts.a.b.v*", "gts.a.b.v1.7~", true),
        ("gts.a.b.v*", "gts.a.b.v2", true),
        ("gts.a.b.v*", "gts.a.b.vip.v1", false),
        ("gts.a.b.v*", "gts.a.b.v1.v1", false),
    ] {
        assert_eq!(pattern(wanted).matches(&id(text)), selected, "{wanted} on {text}");
    }
}

#[test]
fn what_is_not_a_pattern_is_refused() {
    for (text, reason) in [
        ("*", code::WRONG_STAR),
        ("gts*", code::WRONG_STAR),
        ("gts.*.*", WRONG_STAR),
        ("gts.*~", WRONG_STAR),
        ("gts.*.b.v1", WRONG_STAR),
        ("gts.a.b.v1~*~c.d.v1", WRONG_STAR),
        ("gts.a.top*", WRONG_STAR),
        ("gts.v*", WRONG_STAR),
        ("gts.a.b.v1*", WRONG_STAR),
        ("gts.a.b.v1.2*", WRONG_STAR),
        ("gts.a.v*", WRONG_COUNT),
        ("gts.a.b.c.d.e.*", WRONG_COUNT),
        ("gts.a.b.c.d.e.v*", WRONG_COUNT),
        ("gts.a.b.c.v1.2.*", WRONG_NAME),
        ("gts.~*", NO_VERSION),
        ("gts.a.b~*", NO_VERSION),
        ("gts.a.b.v1~~*", NO_VERSION),
        ("gts.A.*", WRONG_NAME),
        ("gts..*", WRONG_NAME),
        ("gts.a..*", WRONG_NAME),
        ("gts.a.b.v1~7a1d2f34-*", WRONG_STAR),
        ("gts.x.v1~", WRONG_COUNT),
    ] {
        let error = IdPattern::parse(text).expect_err(text);
        assert_eq!((error.kind(), error.detail()), (Kind::InvalidType, reason), "{text}");
    }
}

#[test]
fn the_most_specific_pattern_ranks_highest() {
    let ranked = [
        "gts.*",
        "gts.a.*",
        "gts.a.b.*",
        "gts.a.b.v*",
        "gts.a.b.v1~*",
        "gts.a.b.v1~",
        "gts.a.b.v1~c.*",
        "gts.a.b.v1~c.d.v1~*",
        "gts.a.b.v1~c.d.v1~",
        "gts.a.b.v1",
        "gts.a.b.v1~c.d.v1",
    ];
    assert!(ranked.map(|text| pattern(text).specificity()).is_sorted_by(|one, other| one < other));
    assert!(pattern("gts.a.b.v1~").is_exact() && !pattern("gts.a.b.v1~*").is_exact());
}

/// Few words, so that ids and patterns often agree.
fn token() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "a", "a", "a", "b", "_", "v1", "v2", "v1", "1", "2", "v01", "vx", "A", ""])
}

fn strict_segment() -> impl Strategy<Value = String> {
    let name = || prop::sample::select(vec!["a", "a", "a", "v1"]);
    let version = prop::sample::select(vec!["v1", "v1", "v1.2", "v1.3", "v2"]);
    (name(), name(), name(), name(), version).prop_map(|(a, b, c, d, version)| format!("{a}.{b}.{c}.{d}.{version}"))
}

fn strict_id() -> impl Strategy<Value = String> {
    let tail = prop_oneof![Just("~".to_owned()), Just(String::new()), Just(format!("~{UUID}"))];
    (prop::collection::vec(strict_segment(), 1..4), tail)
        .prop_map(|(segments, tail)| format!("gts.{}{tail}", segments.join("~")))
        .prop_filter("an instance needs a type", |text| gts_id::GtsId::is_valid(text))
}

fn strict_pattern() -> impl Strategy<Value = String> {
    let star = prop::sample::select(vec!["", "*", "~*", ".*", "v*"]);
    (strict_id(), any::<prop::sample::Index>(), star)
        .prop_map(|(text, at, star)| format!("{}{star}", text.get(..=at.index(text.len())).unwrap()))
        .prop_filter("not a pattern", |text| gts_id::GtsIdPattern::is_valid(text))
}

/// `gts-id`'s answer for the id as written or with its trailing `~` toggled, if that is an id to it.
fn selected_by_gts_id(wanted: &str, text: &str) -> bool {
    let wanted = gts_id::GtsIdPattern::try_new(wanted).unwrap();
    let toggled = text.strip_suffix('~').map_or_else(|| format!("{text}~"), str::to_owned);
    [text, &toggled]
        .into_iter()
        .filter_map(|text| gts_id::GtsId::try_new(text).ok())
        .any(|id| id.matches_pattern(&wanted))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn whatever_is_strict_is_taken(
        tokens in prop::collection::vec((token(), prop::sample::select(vec![".", ".", ".", "~"])), 1..14),
        end in prop::sample::select(vec!["", "~", "*", "v*"]),
    ) {
        let text = tokens.iter().fold("gts.".to_owned(), |text, (token, joint)| text + token + joint);
        for text in [text.trim_end_matches(['.', '~']).to_owned() + end, text + end] {
            prop_assert!(Identifier::parse(&text).is_ok() || !gts_id::GtsId::is_valid(&text), "{text}");
            prop_assert!(IdPattern::parse(&text).is_ok() || !gts_id::GtsIdPattern::is_valid(&text), "{text}");
        }
    }

    #[test]
    fn strict_ids_and_patterns_are_taken(text in strict_id(), wanted in strict_pattern()) {
        prop_assert_eq!(id(&text).profile(), IdentifierProfile::Strict);
        prop_assert_eq!(pattern(&wanted).is_exact(), !wanted.contains('*'));
    }

    #[test]
    fn on_strict_input_only_the_trailing_tilde_makes_a_difference(text in strict_id(), wanted in strict_pattern()) {
        let selected = pattern(&wanted).matches(&id(&text));
        prop_assert_eq!(selected, selected_by_gts_id(&wanted, &text), "{} on {}", wanted, text);
    }

    #[test]
    fn a_pattern_made_from_an_id_agrees_too(text in strict_id(), at in any::<prop::sample::Index>()) {
        let start = text.get(..=at.index(text.len())).unwrap();
        for wanted in [start.to_owned(), format!("{start}*"), format!("{start}~*"), format!("{start}.*")] {
            if gts_id::GtsIdPattern::is_valid(&wanted) {
                let selected = pattern(&wanted).matches(&id(&text));
                prop_assert_eq!(selected, selected_by_gts_id(&wanted, &text), "{} on {}", wanted, text);
            }
        }
    }
}
