//! Filters, by which of a few events they accept.

use super::*;
use contract::{Kind, Position, Sequence};
use log::{EventFacets, RecordHeader, TopicNumber};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use uuid::Uuid;

const TENANT: &str = "a1b2c3d4-e5f6-7890-abcd-ef1234567890";
const OTHER_TENANT: &str = "00000000-0000-0000-0000-000000000007";

/// Events 1 to 4; the last has only the required members.
fn events() -> Vec<Value> {
    vec![
        json!({
            "type": "gts.hx.core.events.type.v1~shop.orders.order_placed.v1", "subjectType": "gts.shop.orders.order.v1",
            "subject": "o1", "source": "shop", "tenant": TENANT, "correlationId": "c1",
            "occurredAt": "2025-12-03T12:00:00.000Z", "context": {"appId": "shop", "envId": "prod"},
            "data": {"total": 10, "subject": "o2"},
        }),
        json!({
            "type": "gts.hx.core.events.type.v1~shop.orders.order_paid.v1.2", "subjectType": "gts.shop.orders.order.v1~",
            "subject": "o\"2", "source": "billing", "tenant": TENANT, "correlationId": "c1",
            "occurredAt": "2025-12-03T13:00:00.000Z", "context": {"appId": "billing", "envId": "prod"},
            "data": {"total": 20},
        }),
        json!({
            "type": "gts.hx.core.events.type.v1~crm.people.person_moved.v2", "subjectType": "gts.crm.people.person.v2",
            "subject": "p1", "source": "crm", "tenant": OTHER_TENANT,
            "occurredAt": "2025-12-03T14:00:00.000Z", "context": {"envId": "test"},
            "data": {"total": "none"},
        }),
        json!({
            "type": "gts.shop.orders.audit.v1", "source": "shop", "occurredAt": "2025-12-03T15:00:00.000Z", "data": {},
        }),
    ]
}

fn record(event: &Value) -> Record {
    let tag = |name: &str| {
        event.get(name).and_then(Value::as_str).map_or(0, |text| {
            let mut hasher = DefaultHasher::new();
            text.trim_end_matches('~').hash(&mut hasher);
            hasher.finish()
        })
    };
    let tenant = event.get("tenant").and_then(Value::as_str).map_or(0, |id| Uuid::parse_str(id).unwrap().as_u128());
    let facets = EventFacets {
        type_tag: tag("type"),
        subject_type_tag: tag("subjectType"),
        tenant,
        aggregate: None,
        idempotency: None,
    };
    Record {
        header: RecordHeader {
            position: Position(1),
            topic: TopicNumber(1),
            sequence: Sequence(1),
            time: 0,
            id: 1,
            facets: Some(facets),
        },
        body: event.to_string().into(),
    }
}

/// Lines of `filter -> accepted events[, failed evaluations]`; every filter is evaluated twice, so that its cache is
/// tested, too.
#[track_caller]
fn check(table: &str) {
    let records: Vec<Record> = events().iter().map(record).collect();
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (filter, expected) = line.rsplit_once(" -> ").unwrap();
        let filter: EventFilter = serde_json::from_str(filter).unwrap();
        let compiled = compile(&filter).unwrap();
        for round in 1..=2 {
            let mut failures = FilterStats::default();
            let taken = (1..).zip(&records).filter(|(_, record)| compiled.matches(record, &mut failures));
            let mut accepted = taken.map(|(number, _)| number.to_string()).collect::<Vec<_>>().join(" ");
            if accepted.is_empty() {
                accepted.push_str("none");
            }
            if failures.count() > 0 {
                accepted += &format!(", {} failed", failures.count());
            }
            assert_eq!(accepted.trim(), expected.trim(), "{line}, round {round}");
        }
    }
}

#[test]
fn values_of_one_member_widen_and_different_members_narrow() {
    check(
        r#"
        {}                                                                          -> 1 2 3 4
        {"types": ["gts.hx.core.events.type.v1~shop.orders.*"]}                     -> 1 2
        {"types": ["gts.hx.core.events.type.v1~shop.orders.order_paid.v1"]}         -> 2
        {"types": ["gts.hx.core.events.type.v1~shop.*", "gts.shop.orders.audit.v1"]} -> 1 2 4
        {"types": ["gts.nobody.*"]}                                                 -> none
        {"subjectTypes": ["gts.shop.orders.order.v1"]}                              -> 1 2
        {"subjectTypes": ["gts.shop.orders.order.v1~"]}                             -> 1 2
        {"subjectTypes": ["gts.*"]}                                                 -> 1 2 3
        {"subjects": ["o1"]}                                                        -> 1
        {"subjects": ["o2"]}                                                        -> none
        {"subjects": ["p1", "o\"2", "nobody"]}                                      -> 2 3
        {"subjects": [""]}                                                          -> none
        {"sources": ["shop"]}                                                       -> 1 4
        {"sources": ["shop", "crm"]}                                                -> 1 3 4
        {"correlationIds": ["c1"]}                                                  -> 1 2
        {"tenants": ["a1b2c3d4-e5f6-7890-abcd-ef1234567890"]}                       -> 1 2
        {"tenants": ["a1b2c3d4-e5f6-7890-abcd-ef1234567890", "00000000-0000-0000-0000-000000000007"]} -> 1 2 3
        {"tenants": ["00000000-0000-0000-0000-000000000000"]}                       -> none
        {"tenants": ["00000000-0000-0000-0000-000000000007"], "sources": ["shop"]}  -> none
        {"types": ["gts.hx.*"], "sources": ["shop", "crm"], "correlationIds": ["c1"]} -> 1
    "#,
    );
}

#[test]
fn several_values_of_one_label_widen_and_different_labels_narrow() {
    check(
        r#"
        {"context": [["appId", "shop"]]}                                            -> 1
        {"context": [["appId", "shop"], ["appId", "billing"]]}                      -> 1 2
        {"context": [["envId", "prod"], ["appId", "billing"]]}                      -> 2
        {"context": [["envId", "test"], ["envId", "prod"]]}                         -> 1 2 3
        {"context": [["envId", "test"], ["appId", "shop"]]}                         -> none
        {"context": [["nobody", ""]]}                                               -> none
    "#,
    );
}

#[test]
fn occurred_from_is_inclusive_and_occurred_to_exclusive() {
    check(
        r#"
        {"occurredFrom": "2025-12-03T13:00:00Z"}                                             -> 2 3 4
        {"occurredTo": "2025-12-03T13:00:00Z"}                                               -> 1
        {"occurredFrom": "2025-12-03T13:00:00Z", "occurredTo": "2025-12-03T15:00:00Z"}       -> 2 3
        {"occurredFrom": "2025-12-03T14:00:00+01:00", "occurredTo": "2025-12-03T13:00:00.001Z"} -> 2
        {"occurredFrom": "2025-12-03T15:00:00Z", "occurredTo": "2025-12-03T15:00:00Z"}       -> none
    "#,
    );
}

#[test]
fn an_expression_comes_last_and_its_failures_are_counted() {
    check(
        r#"
        {"cel": "data.total > 10"}                                                  -> 2, 2 failed
        {"cel": "has(data.total) && data.total == 10"}                              -> 1
        {"cel": "has(subject) && subject.startsWith('o')"}                          -> 1 2
        {"cel": "subject == data.subject"}                                          -> none, 3 failed
        {"cel": "data.total > 10", "sources": ["billing"]}                          -> 2
        {"cel": "data.total > 10", "types": ["gts.nobody.*"]}                       -> none
        {"cel": "true"}                                                             -> 1 2 3 4
    "#,
    );
}

#[test]
fn the_work_of_an_expression_is_counted_and_grows_with_the_event() {
    let compiled =
        compile(&EventFilter { cel: Some("data.list.all(x, x == 1)".into()), ..EventFilter::default() }).unwrap();
    let steps = |items: usize| {
        let mut failures = FilterStats::default();
        compiled.matches(&record(&json!({"data": {"list": vec![1; items]}})), &mut failures);
        failures.steps()
    };
    assert!(0 < steps(0) && steps(0) < steps(10) && steps(1000) > 2000);
    assert!(steps(1_000_000) < 1_000_000, "the walk ends early");
}

#[test]
fn a_wrong_expression_is_a_validation_error_of_the_filter() {
    for cel in ["", "data.", "nobody == 1", "frob(data)", &"(".repeat(4000), &" ".repeat(5000)] {
        let error = compile(&EventFilter { cel: Some(cel.into()), ..EventFilter::default() }).err().unwrap();
        assert_eq!((error.kind(), error.violations()[0].pointer.as_str()), (Kind::Validation, "/filter"));
    }
}

#[test]
fn only_a_filter_without_wishes_is_empty() {
    for (filter, is_empty) in [
        ("{}", true),
        (r#"{"types": ["gts.*"]}"#, false),
        (r#"{"subjectTypes": ["gts.*"]}"#, false),
        (r#"{"subjects": ["s"]}"#, false),
        (r#"{"tenants": ["00000000-0000-0000-0000-000000000007"]}"#, false),
        (r#"{"sources": ["s"]}"#, false),
        (r#"{"correlationIds": ["c"]}"#, false),
        (r#"{"context": [["a", "b"]]}"#, false),
        (r#"{"occurredFrom": "2025-12-03T15:00:00Z"}"#, false),
        (r#"{"occurredTo": "2025-12-03T15:00:00Z"}"#, false),
        (r#"{"cel": "true"}"#, false),
    ] {
        assert_eq!(compile(&serde_json::from_str(filter).unwrap()).unwrap().is_empty(), is_empty, "{filter}");
    }
}

#[test]
fn an_entry_of_the_broker_never_matches() {
    let mut entry = record(&events()[0]);
    entry.header.facets = None;
    for filter in ["{}", r#"{"sources": ["shop"]}"#, r#"{"cel": "true"}"#] {
        let compiled = compile(&serde_json::from_str(filter).unwrap()).unwrap();
        assert!(!compiled.matches(&entry, &mut FilterStats::default()), "{filter}");
    }
}

#[test]
fn a_body_that_cannot_be_read_matches_nothing_that_looks_at_it() {
    for body in ["", "{", "[]", "{\"type\": 1}", "\u{0}"] {
        let mut record = record(&events()[0]);
        record.body = body.to_owned().into();
        for filter in [r#"{"sources": ["shop"]}"#, r#"{"types": ["gts.*"]}"#, r#"{"cel": "source == 'shop'"}"#] {
            let compiled = compile(&serde_json::from_str(filter).unwrap()).unwrap();
            assert!(!compiled.matches(&record, &mut FilterStats::default()), "{filter} {body}");
        }
    }
}

#[test]
fn a_compiled_filter_is_shared_between_tasks() {
    let filter = EventFilter { types: vec![IdPattern::parse("gts.hx.*").unwrap()], ..EventFilter::default() };
    let compiled = Arc::new(compile(&filter).unwrap());
    let records: Arc<Vec<Record>> = Arc::new(events().iter().map(record).collect());
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (compiled, records) = (Arc::clone(&compiled), Arc::clone(&records));
            std::thread::spawn(move || {
                let mut failures = FilterStats::default();
                (0..1000).all(|n| compiled.matches(&records[n % 4], &mut failures) == (n % 4 != 3))
            })
        })
        .collect();
    assert!(tasks.into_iter().all(|task| task.join().unwrap()));
}

fn id() -> impl Strategy<Value = String> {
    let segment = (prop::sample::select(vec!["a.b", "a.b.c", "a.x", "b.a.c.d"]), 1..3_u8, prop::option::of(0..2_u8))
        .prop_map(|(names, major, minor)| {
            format!("{names}.v{major}{}", minor.map_or(String::new(), |m| format!(".{m}")))
        });
    (prop::collection::vec(segment, 1..3), any::<bool>())
        .prop_map(|(segments, tilde)| format!("gts.{}{}", segments.join("~"), if tilde { "~" } else { "" }))
}

fn pattern() -> impl Strategy<Value = String> {
    prop_oneof![
        id(),
        id().prop_map(|id| format!("{}~*", id.trim_end_matches('~'))),
        prop::sample::select(vec!["gts.*", "gts.a.*", "gts.a.b.*", "gts.a.b.v1.*", "gts.a.b.v1~a.*"])
            .prop_map(str::to_owned),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_filter_by_type_says_what_its_patterns_say_of_the_parsed_event(
        types in prop::collection::vec(pattern(), 0..3),
        subject_types in prop::collection::vec(pattern(), 0..3),
        events in prop::collection::vec((id(), prop::option::of(id())), 1..20),
    ) {
        let parse = |patterns: &[String]| patterns.iter().map(|p| IdPattern::parse(p).unwrap()).collect::<Vec<_>>();
        let filter = EventFilter { types: parse(&types), subject_types: parse(&subject_types), ..EventFilter::default() };
        let compiled = compile(&filter).unwrap();
        let selects = |patterns: &[IdPattern], id: Option<&String>| {
            let id = id.map(|id| Identifier::parse(id).unwrap());
            patterns.is_empty() || id.is_some_and(|id| patterns.iter().any(|pattern| pattern.matches(&id)))
        };
        for (event_type, subject_type) in &events {
            let mut event = json!({"type": event_type, "source": "s", "data": {}});
            if let Some(subject_type) = subject_type {
                event["subjectType"] = json!(subject_type);
            }
            let expected = selects(&filter.types, Some(event_type)) && selects(&filter.subject_types, subject_type.as_ref());
            prop_assert_eq!(compiled.matches(&record(&event), &mut FilterStats::default()), expected, "{}", event);
        }
    }
}
