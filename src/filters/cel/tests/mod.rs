//! The language, by examples.

mod hostile;
mod second_opinion;

use super::*;

const EVENT: &str = r#"{
    "id": "829501ea-99dd-484f-a227-3e958747b8ea",
    "type": "gts.hyperspot.core.events.type.v1~vendor.tenants.tenant_created.v1",
    "topic": "gts.hx.core.events.topic.v1~", "sequence": 7, "aggregateSequence": 2, "position": 40,
    "occurredAt": "2025-12-03T12:01:59.829Z", "createdAt": "2025-12-03T12:02:00.000Z",
    "source": "tenant-service", "subject": "1053828c", "subjectType": "gts.vendor.tenants.tenant.v1",
    "tenant": "a1b2c3d4-e5f6-7890-abcd-ef1234567890", "actor": {"type": "user", "id": "u1"},
    "context": {"appId": "shop", "envId": "prod"},
    "data": {
        "userId": "user-12345", "email": "user@example.com", "count": 3, "price": 4.5, "big": 18446744073709551615,
        "flag": true, "nothing": null, "due": "2025-12-03T13:02:00+01:00", "escaped": "a\"b\u00e4",
        "tags": ["a", "b"], "numbers": [1, 2, 3], "empty": [], "mixed": [1, "a", null, {"k": 1}],
        "lines": [{"sku": "x", "n": 2, "tags": ["t"]}, {"sku": "y", "n": 5, "tags": []}, {"sku": "z"}],
        "nested": {"a": {"b": 1}}, "pairs": [[1, 2], [3, 4]]
    }
}"#;

/// Lines of `expression -> true | false | fails | LINE:COLUMN why`.
#[track_caller]
fn check(table: &str) {
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (source, expected) = line.rsplit_once(" -> ").unwrap();
        assert_eq!(answer(source.trim()), expected.trim(), "{source}");
    }
}

fn answer(source: &str) -> String {
    match CelProgram::compile(source) {
        Ok(program) => match program.matches(EVENT.as_bytes(), &mut 0) {
            Some(truth) => truth.to_string(),
            None => "fails".into(),
        },
        Err(error) => {
            let detail = error.detail().strip_prefix("The CEL expression is not valid at line ").unwrap();
            detail.replacen(", column ", ":", 1).replacen(": ", " ", 1).trim_end_matches('.').into()
        }
    }
}

#[test]
fn the_example_of_the_seed_runs_as_written() {
    check("has(data) && data.userId == 'user-12345' -> true");
}

#[test]
fn a_bare_name_in_has_asks_for_a_member_of_the_event() {
    check(
        "
        has(data)                           -> true
        has(correlationId)                  -> false
        has(occurredAt)                     -> true
        has(event.data)                     -> true
        has(event.causationId)              -> false
        has(data.userId)                    -> true
        has(data.missing)                   -> false
        has(data.nothing)                   -> true
        has(data.nested.a.b)                -> true
        has(data.missing.a)                 -> fails
        has(data.count.a)                   -> fails
        'has(data)' == 'has(' + 'data)'     -> true
        has(data) // has(nothing)           -> true
        has(event)                          -> 1:1 has() takes a member, or a member of something
        has(nobody)                         -> 1:5 this is neither a member of an event nor a variable
    ",
    );
}

#[test]
fn every_member_of_an_event_is_a_variable() {
    check(
        "
        id == '829501ea-99dd-484f-a227-3e958747b8ea' && type.contains('tenant_created') && sequence == 7 -> true
        topic.endsWith('~') && aggregateSequence == 2 && position > 39 && source == 'tenant-service'     -> true
        subject.startsWith('1053') && subjectType.size() > 5 && tenant.contains('-') && actor.id == 'u1' -> true
        context.appId == 'shop' && context['envId'] in ['prod', 'test']                                  -> true
        event.data.userId == data.userId && event['source'] == source && 'data' in event                 -> true
        size(event) == 15 && event.exists(name, name == 'position')                                      -> true
        traceParent == ''                                                                                -> fails
        dataVersion == '' || causationId == '' || messageGroup == '' || deduplicationId == ''            -> fails
        requestId == '' || true                                                                          -> true
    ",
    );
}

#[test]
fn an_absent_member_fails_and_an_operand_that_decides_absorbs_it() {
    check(
        "
        data.missing == 1                        -> fails
        data.missing == 1 || true                -> true
        true || data.missing == 1                -> true
        data.missing == 1 || false               -> fails
        data.missing == 1 && false               -> false
        data.missing == 1 && true                -> fails
        !(data.missing == 1)                     -> fails
        data.count == 1 || data.missing == 1     -> fails
        data.count || true                       -> true
        data.count && true                       -> fails
        data.missing ? true : true               -> fails
        data.lines.exists(l, l.n > 4)            -> true
        data.lines.all(l, l.n > 4)               -> false
        data.lines.exists(l, l.n > 9)            -> fails
        data.lines.all(l, l.n > 1)               -> fails
        data.count                               -> fails
        data.userId                              -> fails
    ",
    );
}

#[test]
fn instants_compare_with_each_other_and_with_rfc_3339_texts() {
    check(
        "
        occurredAt >= '2025-12-03T12:01:59.829Z'                      -> true
        occurredAt > '2025-12-03T12:01:59.829Z'                       -> false
        '2025-12-03T13:01:59.829+01:00' == occurredAt                 -> true
        occurredAt < createdAt && event.occurredAt < event.createdAt  -> true
        occurredAt < timestamp('2026-01-01T00:00:00Z')                -> true
        createdAt == data.due && data.due == createdAt                -> true
        data.due > occurredAt && occurredAt <= data.due               -> true
        timestamp(data.due) == createdAt                              -> true
        string(occurredAt) == '2025-12-03T12:01:59.829Z'              -> true
        int(createdAt) == 1764763320                                  -> true
        type(occurredAt) == timestamp                                 -> true
        createdAt in ['2025-12-03T12:02:00Z']                         -> true
        occurredAt == data.userId                                     -> false
        occurredAt < data.userId                                      -> fails
        occurredAt < 3                                                -> fails
        timestamp(data.userId) == occurredAt                          -> fails
        occurredAt > 'yesterday'        -> 1:12 a time must be RFC 3339, as in 2025-12-03T12:01:59.829Z
        timestamp('tomorrow') == occurredAt -> 1:1 a time must be RFC 3339, as in 2025-12-03T12:01:59.829Z
    ",
    );
}

#[test]
fn timestamps_are_as_the_language_definition_has_them() {
    check(
        "
        timestamp(0) == timestamp('1970-01-01T00:00:00Z')                             -> true
        timestamp(1764763320) == createdAt && timestamp(-1) < timestamp(0)            -> true
        timestamp(data.count) == timestamp('1970-01-01T00:00:03Z')                    -> true
        timestamp(data.price) == occurredAt                                           -> fails
        string(timestamp('2009-02-13T23:31:30Z')) == '2009-02-13T23:31:30Z'           -> true
        string(timestamp('2009-02-13T23:31:30.50Z')) == '2009-02-13T23:31:30.5Z'      -> true
        string(timestamp('2009-02-13T23:31:30.000000001Z')) == '2009-02-13T23:31:30.000000001Z' -> true
        string(createdAt) == '2025-12-03T12:02:00Z'                                   -> true
        timestamp('9999-12-31T23:59:59.999999999Z') > occurredAt                      -> true
        occurredAt < timestamp('9999-12-31T00:00:00Z')                                -> true
        timestamp(253402300799) > occurredAt                                          -> true
        timestamp('0000-01-01T00:00:00Z') < occurredAt -> 1:1 a timestamp lies in the years 1 to 9999
        timestamp(253402300800) > occurredAt           -> 1:1 a timestamp lies in the years 1 to 9999
        timestamp(9223372036854775807) > occurredAt    -> 1:1 a timestamp lies in the years 1 to 9999
        timestamp(1.5) > occurredAt    -> 1:1 timestamp() takes an RFC 3339 text or seconds since 1970
        timestamp(data.big) > occurredAt                                              -> fails
    ",
    );
}

#[test]
fn a_double_at_the_end_of_the_integers_is_not_converted() {
    check(
        "
        int(-9223372036854775808.0) < 0                     -> fails
        int(9223372036854775807.0) > 0                      -> fails
        int(-9223372036854774784.0) == -9223372036854774784 -> true
    ",
    );
}

#[test]
fn what_cannot_be_a_key_is_not_in_a_map() {
    check(
        "
        null in data.nested                 -> false
        data.nothing in data.nested         -> false
        [] in {}                            -> false
        data.tags in {'a': 1}               -> false
        !(null in data.nested) && true      -> true
        'a' in data.nested                  -> true
    ",
    );
}

#[test]
fn numbers_compare_by_value_and_do_not_wrap() {
    check(
        "
        data.count == 3 && data.count == 3u && data.count == 3.0      -> true
        data.count + 1 == 4 && data.count * 2 - 1 == 5                -> true
        data.price * 2 == 9.0 && data.price + 1 > 5                   -> true
        7 / 2 == 3 && 7 % 4 == 3 && 7.0 / 2.0 == 3.5 && -data.count < 0 -> true
        data.big == 18446744073709551615u && data.big > 1             -> true
        0x1F == 31 && 1e3 == 1000 && .5 < 1 && 2u * 3u == 6u          -> true
        -9223372036854775808 < 0 && --1 == 1                          -> true
        int('12') == 12 && int(4.9) == 4 && uint(3) == 3u             -> true
        double('1.5') == 1.5 && string(3) == '3' && bool('true')      -> true
        9223372036854775807 + 1 == 0                                  -> fails
        1 / 0 == 1 || 1 % 0 == 1                                      -> fails
        1u - 2u == 0u                                                 -> fails
        data.big + 1 == 0                                             -> false
        -(-9223372036854775807 - 1) == 0                              -> fails
        int('x') == 1                                                 -> fails
        int(1e30) == 1 || uint(-1) == 1                               -> fails
        9223372036854775808 == 1                                      -> 1:1 the integer is out of range
        18446744073709551616u == 1u                                   -> 1:1 the number is not readable or out of range
        12abc == 1                                                    -> 1:3 the number is not readable or out of range
    ",
    );
}

#[test]
fn texts_have_escapes_and_functions() {
    check(
        r#"
        data.escaped == "a\"b\u00e4" && data.escaped == 'a"bä' && data.escaped.size() == 4 -> true
        '\x41\101\n'.startsWith('AA') && r'\n' == '\\n' && '''a'b''' == "a'b"              -> true
        data.email.matches('^[a-z]+@example[.]com$') && matches(data.email, '@')           -> true
        data.email.contains('@') && data.email.endsWith('.com') && !data.email.matches('^x') -> true
        'a' < 'b' && data.userId + '!' == 'user-12345!'                                    -> true
        data.count.contains('a')                                                           -> fails
        data.userId + 1 == ''                                                              -> fails
        'a' == b'a'                                         -> 1:8 an event has no bytes; use a text
        'a                                                  -> 1:1 the text has no closing quote
        '\q' == ''                                          -> 1:3 the escape in this text is unknown
        data.email.matches(data.userId)                     -> 1:12 the pattern of matches() must be a literal
        data.email.matches('(')                             -> 1:12 the pattern is not a regular expression, or too large
    "#,
    );
}

#[test]
fn lists_and_maps_can_be_searched_compared_and_gone_through() {
    check(
        "
        'a' in data.tags && !('c' in data.tags) && 2 in data.numbers && 'a' in data.nested     -> true
        data.tags == ['a', 'b'] && ['a', 'b'] == data.tags && data.numbers == [1, 2u, 3.0]     -> true
        data.nested == {'a': {'b': 1}} && {'a': {'b': 1}} == data.nested                       -> true
        [1, 2] in data.pairs && data.pairs[0] in [[1, 2]] && data.pairs[1][0] == 3             -> true
        data.numbers[1.0] == 2 && data.lines[0].sku == 'x' && data['userId'] == data.userId    -> true
        data.lines.exists(l, l.sku == 'y' && l.n > 4) && data.tags.all(t, t.size() == 1)       -> true
        data.lines.exists(l, has(l.tags) && l.tags.exists(t, t == 't'))                        -> true
        data.numbers.exists_one(n, n > 2) && !data.numbers.existsOne(n, n > 1)                 -> true
        data.numbers.map(n, n * 2) == [2, 4, 6] && data.numbers.map(n, n > 1, n) == [2, 3]     -> true
        data.numbers.filter(n, n > 1).size() == 2 && size(data.tags + ['c']) == 3              -> true
        data.nested.all(k, k == 'a') && data.empty.all(x, false) && !data.empty.exists(x, true) -> true
        {1: 'a', 'k': true}[1] == 'a' && {'k': true}.k && type(data.tags) == list              -> true
        type(data.count) == int && type(data.nothing) == null_type && data.nothing == null     -> true
        data.tags == 'a' || data.count == 'a' || data.nested == data.tags                      -> false
        (data.flag ? [1] : [2])[0] == 1 && dyn(data.count) == 3                                -> true
        data.numbers[3] == 1                                                                   -> fails
        data.numbers['a'] == 1                                                                 -> fails
        'a' in data.userId                                                                     -> fails
        {'a': 1, 'a': 2} == {}                                                                 -> fails
        {null: 1} == {}                                                                        -> fails
        data.userId.all(c, true)                                                               -> fails
        data.mixed.exists(m, m.k == 1)                                                         -> true
    ",
    );
}

#[test]
fn what_is_not_the_language_is_refused_with_its_place() {
    check(
        "
        nobody == 1                    -> 1:1 this is neither a member of an event nor a variable
        data.x == y                    -> 1:11 this is neither a member of an event nor a variable
        event.nobody == 1              -> 1:7 this is neither a member of an event nor a variable
        data.tags.all(t, t == s)       -> 1:23 this is neither a member of an event nor a variable
        t == 1 || data.tags.all(t, t == 1) -> 1:1 this is neither a member of an event nor a variable
        frob(data)                     -> 1:1 there is no such function with so many operands
        data.frob()                    -> 1:6 there is no such function with so many operands
        size(data, 1) == 1             -> 1:1 there is no such function with so many operands
        duration('1s') == 1            -> 1:1 there is no such function with so many operands
        contains('a', 'b')             -> 1:1 there is no such function with so many operands
        data.tags.all(data, true)      -> 1:15 a loop's variable needs a name of its own
        data.tags.all(x, data.tags.all(x, true)) -> 1:32 a loop's variable needs a name of its own
        data.tags.all(t)               -> 1:16 `,` is expected here
        data.tags.all(1, true)         -> 1:15 a name is expected here
        data ==                        -> 1:8 an operand is expected here
        == 1                           -> 1:1 an operand is expected here
        data.count == 1 data           -> 1:17 an operator is expected here
        (data.count == 1               -> 1:17 `)` is expected here
        [1, 2                          -> 1:6 `,` or a closing bracket is expected here
        data.                          -> 1:6 a name is expected here
        a = 1                          -> 1:3 this character is not valid here
        data.x ? 1                     -> 1:11 `:` is expected here
        if == 1                        -> 1:1 an operand is expected here
        data.?x                        -> 1:6 a name is expected here
        Thing{a: 1}                    -> 1:1 this is neither a member of an event nor a variable
        `data`                         -> 1:1 this character is not valid here
        #                              -> 1:1 this character is not valid here
    ",
    );
    assert_eq!(answer("data.count == 3 &&\n  // a note\n  ö"), "3:3 this character is not valid here");
    assert_eq!(answer(""), "1:1 an operand is expected here");
}

#[test]
fn a_refusal_points_at_the_filter_and_quotes_nothing() {
    for source in
        ["data.secret == 'hunter2' &&", "'hunter2", "hunter2", "data.x.matches('hunter2(')", "occurredAt > 'hunter2'"]
    {
        let error = CelProgram::compile(source).unwrap_err();
        assert_eq!(error.kind(), contract::Kind::Validation);
        assert_eq!(error.violations()[0].pointer, "/filter");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }
}

#[test]
fn only_the_members_an_expression_names_are_read() {
    for (source, wanted) in [
        ("source == 'a' && event.source == 'b' && has(data)", Some(vec!["source", "data"])),
        ("true", Some(vec![])),
        ("event['source'] == 'a' && source == 'a'", None),
        ("'source' in event", None),
    ] {
        assert_eq!(CelProgram::compile(source).unwrap().wanted, wanted, "{source}");
    }
}

#[test]
fn a_body_that_is_no_event_has_no_answer() {
    let program = CelProgram::compile("data.a == 1 || true").unwrap();
    for body in [&b""[..], b"{", b"[]", b"\xff", b"{\"data\": 1e999}", b"{} x"] {
        assert_ne!(program.matches(body, &mut 0), Some(false), "{body:?}");
    }
    assert_eq!(program.matches(b"{", &mut 0), None);
}
