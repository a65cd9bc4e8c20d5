//! Expressions and events that are meant to cause as much work as possible.

use super::*;
use proptest::prelude::*;
use std::time::{Duration, Instant};

#[test]
fn a_runaway_expression_is_refused_at_once_on_a_small_stack() {
    let chain = |first: &str, then: &str| format!("{first}{}", then.repeat((4096 - first.len()) / then.len()));
    let nested = |open: &str, close: &str, times| format!("{}1{}", open.repeat(times), close.repeat(times));
    let loops = "[1,1,1,1,1,1,1,1].all(a,".to_owned() + "[1,1,1,1,1,1,1,1].all(b,[1,1,1,1,1,1,1,1].all(c,true)))";
    let sources = [
        chain("id", "||id"),
        chain("1", "+1"),
        chain("data", ".a"),
        chain("data", "[0]"),
        chain("data", ".size()"),
        chain("1", "==1"),
        chain("[1", ",1"),
        chain("", "!"),
        chain("", "-"),
        chain("", "("),
        chain("", "["),
        chain("", "{"),
        chain("", "{1:"),
        chain("", "size("),
        chain("", "true?true:"),
        chain("", "[].all(x,"),
        chain("", "'"),
        chain("", "\u{0}"),
        chain("", "?:"),
        chain("", "ä"),
        nested("(", ")", 40),
        nested("[[((", "))]]", 400),
        nested("{'a':", "}", 500),
        loops,
        format!("1{} == 101", "+1".repeat(100)),
        format!("data{} == 1", ".a".repeat(100)),
        format!("'{}' == ''", "a".repeat(5000)),
        format!("data.a.matches('{}')", "a".repeat(600)),
        chain("true", "&&''.matches('a')"),
        r"data.a.matches('(\\w{100}){100}')".into(),
        r"data.a.matches('((((a{1,100}){1,100}){1,100}){1,100})')".into(),
        "{".repeat(63) + "?[" + &"(".repeat(11) + &"{".repeat(26) + "l\u{0}?(-",
    ];
    let refuse = move || {
        for source in &sources {
            let begun = Instant::now();
            assert!(CelProgram::compile(source).is_err(), "{source}");
            // A hang would take for ever; a slow machine must not fail the test.
            assert!(begun.elapsed() < Duration::from_secs(120), "{:?} {source}", begun.elapsed());
        }
    };
    std::thread::Builder::new().stack_size(512 * 1024).spawn(refuse).unwrap().join().unwrap();
}

#[test]
fn an_expression_within_the_limits_is_taken_on_a_small_stack() {
    let deep = |open: &str, close: &str, times| format!("{}true{}", open.repeat(times), close.repeat(times));
    let ids: Vec<String> = (0..300).map(|n| format!("'user-{n}'")).collect();
    let sources = [
        deep("(", ")", 31),
        deep("[", "]", 30),
        deep("!(", ")", 30),
        format!("data.userId in [{}]", ids.join(",")),
        format!("1{} == 20", "+1".repeat(19)),
    ];
    let take = move || sources.iter().for_each(|source| drop(CelProgram::compile(source).unwrap()));
    std::thread::Builder::new().stack_size(512 * 1024).spawn(take).unwrap().join().unwrap();
}

/// An event of the largest size, and the most expensive expressions.
#[test]
fn the_costliest_evaluation_ends() {
    let ones = vec!["1"; 200_000].join(",");
    let long = "ab".repeat(150_000);
    let body = format!(r#"{{"data": {{"list": [{ones}], "text": "{long}", "map": {{{}}}}}}}"#, wide(20_000));
    for source in [
        "data.list.all(x, data.list.all(y, x == y))",
        "data.list.all(x, !data.text.contains('bb'))",
        "data.list.all(x, !data.text.matches('(a|ab)*c'))",
        "data.list.all(x, data.text == data.text + '')",
        "data.list.map(x, data.list).all(l, l.all(m, m == 1))",
        "data.list.all(x, data.list == data.list)",
        "data.list.all(x, !(2 in data.list))",
        "data.list.all(x, data.map.k19999 == 1)",
        "data.list.all(x, data.map == data.map)",
        "data.list.all(x, size(data.text) > 0)",
        "data.list.map(x, data.text + data.text).size() == 1",
        "data.list.map(x, data.list + data.list).size() == 1",
        "data.list.all(x, data.text < data.text + 'a')",
        "data.list.all(x, double(data.text) == 1.0 || true)",
        "data.list.filter(x, x == 1).map(y, string(y)).all(z, z == '1')",
    ] {
        let program = CelProgram::compile(source).unwrap();
        let begun = Instant::now();
        assert_eq!(program.matches(body.as_bytes(), &mut 0), None, "{source}");
        // A hang would take for ever; a slow machine must not fail the test.
        assert!(begun.elapsed() < Duration::from_secs(120), "{:?} {source}", begun.elapsed());
    }
}

/// Everything that takes time in proportion to the event is counted, so that nothing can be repeated at no cost.
#[test]
fn every_kind_of_work_takes_its_steps() {
    let (ones, text) = (vec!["1"; 1000].join(","), "a".repeat(32_000));
    let body =
        format!(r#"{{"data": {{"list": [{ones}], "text": "{text}", "same": "{text}", "map": {{{}}}}}}}"#, wide(1000));
    let reading = body.len() as u64 / 32;
    for (source, least) in [
        ("data.text == data.same", 1000),
        ("data.text != data.same", 1000),
        ("data.text <= data.same", 1000),
        ("data.text in [data.same]", 1000),
        ("size(data.text) == 1", 1000),
        ("data.text.contains('b')", 2000),
        ("data.text + 'b' == ''", 8000),
        ("data.text.matches('b')", 32_000),
        ("2 in data.list", 1000),
        ("data.list == data.list", 1000),
        ("data.list + data.list == []", 2000),
        ("data.list.all(x, x == 1)", 3000),
        ("data.list.exists(x, x == 2)", 3000),
        ("data.list.exists_one(x, x == 2)", 3000),
        ("data.list.map(x, x) == []", 1000),
        ("data.list.filter(x, false) == []", 1000),
        ("data.map.k == 1", 250),
        ("has(data.map.k)", 250),
        ("data.map['k'] == 1", 250),
        ("'k' in data.map", 250),
        ("data.map.all(k, true)", 2000),
        ("data.map == data.map", 100_000),
    ] {
        let mut steps = 0;
        CelProgram::compile(source).unwrap().matches(body.as_bytes(), &mut steps);
        assert!(steps - reading >= least, "{source} {steps}");
    }
}

fn wide(members: usize) -> String {
    (0..members).map(|n| format!(r#""k{n}":1"#)).collect::<Vec<_>>().join(",")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(source in r#"[a-z0-9 .()\[\]{}'"\\?:!&|=<>+*/%,-]{0,60}|\PC{0,40}"#) {
        if let Ok(program) = CelProgram::compile(&source) {
            program.matches(EVENT.as_bytes(), &mut 0);
        }
    }

    #[test]
    fn no_sequence_of_words_makes_it_panic(words in prop::collection::vec(prop::sample::select(vec![
        "data", "event", "has(", "all(", ".", "x", ",", ")", "(", "[", "]", "{", "}", ":", "?", "&&", "||", "==", "in",
        "!", "-", "1", "'a'", "size(", "matches(", "map(", "occurredAt", "true",
    ]), 0..24)) {
        if let Ok(program) = CelProgram::compile(&words.join(" ")) {
            program.matches(EVENT.as_bytes(), &mut 0);
        }
    }
}
