//! Codes: what parses, what a pattern of codes selects, and what a profile takes.

use super::code::{NEITHER, ONE_PART, WRONG_CASE, WRONG_STAR};
use super::*;
use proptest::prelude::*;

#[test]
fn plain_names_are_identifiers_as_they_are_written() {
    for text in [
        "order.created",
        "ecommerce:orders:order:created",
        "crm:customers:customer:registered",
        "com.acme.order.created",
        "Order.Created",
        "a.b.c.d.e.f.g.h",
        "a:b:c:d:e:f:g:h",
        "1.0",
        "_._",
        "-:-",
        "gts:order",
        "gtsx.order",
        "a.gts.b",
        &format!("a.{}", "b".repeat(limits::CODE_BYTES_MAX - 2)),
    ] {
        let id = Identifier::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((id.as_str(), id.key(), id.is_gts(), id.profile()), (text, text, false, IdentifierProfile::Relaxed));
        assert_eq!(IdPattern::parse(text).unwrap().as_str(), text);
        assert_eq!(TopicId::parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn what_is_neither_a_code_nor_a_gts_id_is_refused_with_both_forms() {
    for (text, reason) in [
        ("orders", ONE_PART),
        ("order created", NEITHER),
        ("order.", NEITHER),
        (".order", NEITHER),
        ("order..created", NEITHER),
        ("order::created", NEITHER),
        ("shop:order.created", NEITHER),
        ("shop.order:created", NEITHER),
        ("order/created", NEITHER),
        ("order.created~", NEITHER),
        ("order.cr\u{e9}\u{e9}e", NEITHER),
        ("order.created\n", NEITHER),
        ("order.*", NEITHER),
        ("a.b.c.d.e.f.g.h.i", NEITHER),
        ("GTS.order.created", WRONG_CASE),
        ("Gts.order", WRONG_CASE),
    ] {
        let error = Identifier::parse(text).expect_err(text);
        assert_eq!((error.kind(), error.detail()), (Kind::InvalidType, reason), "{text}");
        assert!(reason.contains("order.created") && reason.contains("gts.order.created.v1"));
    }
    let long = format!("a.{}", "b".repeat(limits::CODE_BYTES_MAX - 1));
    assert_eq!(Identifier::parse(&long).unwrap_err().detail(), "A code has at most 200 bytes.");
}

#[test]
fn codes_compare_exactly() {
    let created = EventTypeId::parse("order.created").unwrap();
    for other in ["order.Created", "order:created", "order.created.v1"] {
        assert_ne!(created, EventTypeId::parse(other).unwrap());
        assert!(!IdPattern::parse(other).unwrap().matches(created.as_identifier()), "{other}");
    }
}

#[test]
fn a_pattern_of_codes_selects_by_prefix() {
    for (wanted, text, selected) in [
        ("order.*", "order.created", true),
        ("order.*", "order.line.added", true),
        ("order.*", "orders.created", false),
        ("order.*", "order:created", false),
        ("order.*", "Order.created", false),
        ("shop:*", "shop:orders:order:created", true),
        ("shop:orders:*", "shop:orders:order:created", true),
        ("shop:orders:*", "shop:orders", false),
        ("shop:orders:*", "shop:ordersx:y", false),
        ("order.created", "order.created", true),
        ("order.created", "order.created.again", false),
        // Neither kind takes the other.
        ("gts.*", "order.created", false),
        ("gts.*", "gts:order", false),
        ("gts:*", "gts.order.created.v1", false),
        ("gts:*", "gts:order", true),
    ] {
        let id = Identifier::parse(text).unwrap();
        assert_eq!(IdPattern::parse(wanted).unwrap().matches(&id), selected, "{wanted} on {text}");
    }
}

#[test]
fn what_is_not_a_pattern_of_codes_is_refused() {
    for (text, reason) in [
        ("order*", WRONG_STAR),
        ("order.cre*", WRONG_STAR),
        ("*.created", WRONG_STAR),
        ("order.*.added", WRONG_STAR),
        ("order.**", WRONG_STAR),
        ("order.*.*", WRONG_STAR),
        ("shop:order.*", WRONG_STAR),
        ("shop.order:*", WRONG_STAR),
        (".*", WRONG_STAR),
        (":*", WRONG_STAR),
        ("a..*", WRONG_STAR),
        ("a.b.c.d.e.f.g.h.*", WRONG_STAR),
        ("GTS.*", WRONG_CASE),
        ("orders", ONE_PART),
        ("order.created~*", WRONG_STAR),
    ] {
        let error = IdPattern::parse(text).expect_err(text);
        assert_eq!((error.kind(), error.detail()), (Kind::InvalidType, reason), "{text}");
    }
}

#[test]
fn the_code_itself_ranks_above_patterns_and_longer_ones_above_shorter() {
    let ranked = ["shop.*", "shop.orders.*", "shop.orders.order.*", "a.b", "shop.orders.order.created"];
    let ranks = ranked.map(|text| IdPattern::parse(text).unwrap().specificity());
    assert!(ranks.is_sorted_by(|one, other| one < other), "{ranks:?}");
}

#[test]
fn under_the_strict_profile_only_strict_gts_ids_are_taken_by_whatever_parser() {
    let strict = ["gts.hx.core.events.topic.v1~", "gts.hx.core.events.topic.v1~acme.shop.main.orders.v1"];
    let other = ["order.created", "orders", "gts.order.created.v1", "gts.x.test1.events.v1~", "gts.a.b.c.d.v1"];
    under_profile(IdentifierProfile::Strict, || {
        for text in strict {
            assert!(TopicId::parse(text).is_ok() && IdPattern::parse(text).is_ok(), "{text}");
            assert!(serde_json::from_value::<EventTypeId>(text.into()).is_ok(), "{text}");
        }
        assert!(IdPattern::parse("gts.hx.core.*").is_ok());
        for text in other {
            let error = TopicId::parse(text).expect_err(text);
            assert_eq!((error.kind(), error.detail()), (Kind::InvalidType, NOT_STRICT), "{text}");
            assert!(text.parse::<SubjectTypeId>().is_err() && IdPattern::parse(text).is_err(), "{text}");
            assert!(serde_json::from_value::<EventTypeId>(text.into()).is_err(), "{text}");
        }
        assert!(IdPattern::parse("order.*").is_err());
        // What is no identifier at all is still told what is wrong with it.
        assert_eq!(TopicId::parse("gts.a.b").unwrap_err().detail(), gts::NO_VERSION);
    });
    assert!(other.iter().filter(|text| Identifier::parse(text).is_ok()).count() == 4, "outside of it they are taken");
}

#[test]
fn the_outer_profile_is_back_after_the_inner_one() {
    let takes_codes = || Identifier::parse("order.created").is_ok();
    under_profile(IdentifierProfile::Strict, || {
        assert!(under_profile(IdentifierProfile::Relaxed, takes_codes) && !takes_codes());
        let panicked = std::panic::catch_unwind(|| under_profile(IdentifierProfile::Relaxed, || panic!("on purpose")));
        assert!(panicked.is_err() && !takes_codes());
    });
    assert!(takes_codes());
}

fn code(parts: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    let part = prop_oneof!["[A-Za-z0-9_-]{1,4}", "[ab]"];
    let joint = prop::sample::select(vec![".", ":"]);
    (prop::collection::vec(part, parts), joint)
        .prop_map(|(parts, joint)| parts.join(joint))
        .prop_filter("begins like a GTS id", |text| !text.to_ascii_lowercase().starts_with("gts."))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_code_is_printed_as_it_was_read(text in code(2..9)) {
        let id = Identifier::parse(&text).unwrap();
        prop_assert_eq!(id.to_string(), &*text);
        let json = serde_json::to_string(&id).unwrap();
        prop_assert_eq!(serde_json::from_str::<Identifier>(&json).unwrap(), id);
    }

    #[test]
    fn a_pattern_selects_exactly_what_begins_like_it(text in code(2..9), other in code(2..9), parts in 1..8_usize) {
        let joint = if text.contains('.') { '.' } else { ':' };
        let start: Vec<_> = other.split(joint).take(parts).collect();
        let start = format!("{}{joint}", start.join(&joint.to_string()));
        if let Ok(pattern) = IdPattern::parse(&format!("{start}*")) {
            prop_assert_eq!(pattern.matches(&Identifier::parse(&text).unwrap()), text.starts_with(&start));
        }
    }

    #[test]
    fn whatever_is_taken_is_of_one_form(text in "[a-zA-Z0-9_.:~*-]{0,24}") {
        let is_taken = Identifier::parse(&text).is_ok();
        let joint = if text.contains('.') { '.' } else { ':' };
        let is_code = (2..=8).contains(&text.split(joint).count())
            && text.split(joint).all(|part| {
                !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
            })
            && !text.to_ascii_lowercase().starts_with("gts.");
        prop_assert_eq!(is_taken, is_code || text.starts_with("gts.") && is_taken);
    }
}
