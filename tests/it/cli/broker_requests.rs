//! Commands that call a broker: the message when no broker responds, when it refuses, and when it requests a later
//! retry.

use super::{ask, first_line, pretend, program, response, run, server};
use serde_json::json;
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Every subcommand that calls a broker.
const ASKING: [&[&str]; 17] = [
    &["publish", "{}"],
    &["tail"],
    &["tail", "--no-follow"],
    &["topics", "list"],
    &["topics", "show", "gts.hx.core.events.topic.v1~"],
    &["types", "list"],
    &["types", "show", "gts.a.b.c.d.v1~"],
    &["consumers", "list"],
    &["consumers", "groups"],
    &["claims", "handlers"],
    &["claims", "list", "billing"],
    &["dead-letters", "list"],
    &["projections", "list"],
    &["projections", "get", "p"],
    &["import", "/dev/null"],
    &["export"],
    &["export", "--all"],
];

#[test]
fn where_no_broker_is_the_message_says_so_and_the_exit_is_1() {
    // A port without a listener: the test has just released it.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{address}");
    for arguments in ASKING {
        let began = Instant::now();
        let run = run(&[arguments, &["--url", &url]].concat()).expect(1);
        assert!(run.err.starts_with(&format!("event-broker: no broker answers at {url} (")), "{}", run.err);
        assert!(run.err.contains("event-broker serve") && run.out.is_empty(), "{}", run.err);
        assert!(began.elapsed() < Duration::from_secs(120), "{arguments:?} waited although no broker can respond");
    }
}

#[test]
fn what_makes_no_sense_is_misuse() {
    for (arguments, said) in [
        (&["topics", "list", "--url", "nowhere"][..], "--url nowhere"),
        (&["topics", "list", "--url", "ftp://x"], "must begin with http"),
        (&["topics", "change", "gts.a.b.c.d.v1~"], "nothing to change"),
        (&["tail", "--from", "yesterday"], "earliest, latest or a number"),
        (&["tail", "--limit", "0"], "--limit"),
        (&["tail", "--context", "novalue"], "KEY=VALUE"),
        (&["publish", "not json"], "EVENT is not JSON"),
        (&["publish", "--type", "gts.a", "--data", "{"], "--data is not JSON"),
        (&["publish", "--subject", "s"], "--type"),
        (&["publish"], "there is no event to publish"),
        (&["consumers", "reset", "g", "--topic", "gts.a.b.c.d.v1~"], "--to"),
        (&["dead-letters", "redrive"], "<ID>"),
        (&["dead-letters", "redrive", "x", "--name", "billing"], "--name"),
        (&["dead-letters", "redrive", "x", "--data", "{"], "--data is not JSON"),
        (&["dead-letters", "discard", "x"], "--reason"),
        (&["export", "gts.a", "--all"], "--all"),
        (&["backup", "--data", "no/such/folder", "--output", "x"], "there is no log in no/such/folder"),
        (&["restore", "--from", "no/such/folder"], "there is no backup in no/such/folder"),
        (&["verify", "--data", "no/such/folder"], "there is no log in no/such/folder"),
        (&["completions", "tcl"], "invalid value"),
        (&["nonsense"], "unrecognized subcommand"),
    ] {
        let run = run(arguments).expect(2);
        assert!(run.err.contains(said) && run.out.is_empty(), "{arguments:?}: {}", run.err);
    }
}

#[test]
fn a_refusal_is_told_in_full() {
    let server = server();
    let run = ask(&server, &["publish", r#"{"type":"gts.vendor.none.such.v1","source":"s","data":{}}"#]).expect(1);
    assert!(run.err.starts_with("event-broker: event 1 was refused: "), "{}", run.err);
    for said in ["(422 EVENT_BROKER_VALIDATION_ERROR)", "\n  /type: ", "\n  trace: "] {
        assert!(run.err.contains(said), "{said}: {}", run.err);
    }
    for arguments in [
        &["topics", "show", "gts.hx.core.events.topic.v1~vendor.none.v1"][..],
        &["tail", "gts.hx.core.events.topic.v1~vendor.none.v1"],
        &["export", "gts.hx.core.events.topic.v1~vendor.none.v1"],
        &["types", "show", "gts.hyperspot.core.events.type.v1~vendor.none.such.v1"],
        &["consumers", "show", "b7bdf2c5-11c5-4db4-8e0c-5a8ba5a3bd5e"],
        &["consumers", "delete", "b7bdf2c5-11c5-4db4-8e0c-5a8ba5a3bd5e"],
        &["consumers", "group", "nobody"],
    ] {
        let run = ask(&server, arguments).expect(1);
        assert!(run.err.contains("(404 EVENT_BROKER_NOT_FOUND): "), "{arguments:?}: {}", run.err);
        assert!(run.out.is_empty(), "{}", run.out);
    }
}

#[test]
fn what_is_no_event_broker_is_told_apart() {
    let (url, _requests) = pretend(|_, _| response("502 Bad Gateway", "", "<html>"));
    let said = run(&["topics", "list", "--url", &url]).expect(1).err;
    assert!(said.contains("Not an event broker's response (502)") && said.contains("--url"), "{said}");
    let (url, _requests) = pretend(|_, _| response("200 OK", "", "<html>"));
    let said = run(&["topics", "list", "--url", &url]).expect(1).err;
    assert!(said.contains("the broker's response cannot be read"), "{said}");
    // The client does not follow a redirect: it is not a broker's response.
    let (url, _requests) = pretend(|_, _| response("302 Found", "location: http://127.0.0.1:1/\r\n", ""));
    let said = run(&["topics", "list", "--url", &url]).expect(1).err;
    assert!(said.contains("(302)"), "{said}");
}

#[test]
fn a_broker_that_asks_for_time_is_given_it() {
    let (url, requests) = pretend(|number, _| match number {
        0 => response("503 Service Unavailable", "retry-after: 1\r\n", ""),
        _ => response("200 OK", "", r#"{"topics":[{"id":"late"}],"page_info":{}}"#),
    });
    let began = Instant::now();
    assert_eq!(run(&["topics", "list", "--json", "--url", &url]).expect(0).json(), [json!({"id": "late"})]);
    assert!(began.elapsed() >= Duration::from_secs(1), "the retry came too early");
    assert_eq!(requests.iter().take(2).count(), 2);
}

#[test]
fn a_request_that_a_full_broker_refused_is_repeated_whatever_it_does() {
    let (url, requests) = pretend(|number, _| match number {
        0 => response("429 Too Many Requests", "", ""),
        _ => response("200 OK", "", r#"{"data":{"id":"made"}}"#),
    });
    run(&["consumers", "create", "--group", "g", "--topic", "gts.a", "--url", &url]).expect(0);
    assert_eq!(requests.iter().take(2).count(), 2);
}

#[test]
fn what_could_happen_twice_is_sent_once() {
    let (url, requests) = pretend(|_, _| response("503 Service Unavailable", "retry-after: 0\r\n", ""));
    run(&["consumers", "create", "--group", "g", "--topic", "gts.a", "--url", &url]).expect(1);
    assert!(requests.recv().unwrap().starts_with("POST /v1/consumers "));
    assert!(requests.try_recv().is_err(), "the request was sent again");
}

#[test]
fn proxies_of_the_environment_are_not_used() {
    let server = server();
    let mut command = program(&["topics", "list", "--url", &server.url]);
    for name in ["http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"] {
        command.env(name, "http://127.0.0.1:1");
    }
    assert!(command.output().unwrap().status.success());
}

#[test]
fn an_address_may_lie_below_a_path() {
    for base in ["/broker", "/broker/"] {
        let (url, requests) = pretend(|_, _| response("200 OK", "", r#"{"topics":[]}"#));
        run(&["topics", "list", "--url", &format!("{url}{base}")]).expect(0);
        assert!(requests.recv().unwrap().starts_with("GET /broker/v1/topics HTTP/1.1\r\n"));
    }
}

#[test]
fn every_subcommand_teaches_itself() {
    let help = run(&["--help"]).expect(0).out;
    let mut place = 0;
    for subcommand in
        "serve config publish tail topics types consumers import export verify backup restore bench completions"
            .split(' ')
    {
        let at = help.find(&format!("\n  {subcommand} ")).unwrap_or_else(|| panic!("{subcommand} is not in {help}"));
        assert!(at > place, "{subcommand} is out of order");
        place = at;
        let own = run(&[subcommand, "--help"]).expect(0).out;
        assert!(own.contains("\nExamples:\n  event-broker "), "{subcommand} has no examples: {own}");
        let asks = ASKING.iter().any(|arguments| arguments[0] == subcommand);
        assert_eq!(own.contains("EVENT_BROKER_URL"), asks, "{subcommand}: {own}");
    }
    assert!(help.contains("\nExamples:\n  event-broker serve"), "{help}");
}

#[test]
fn shells_get_their_completions() {
    for (shell, said) in
        [("bash", "complete -F"), ("zsh", "#compdef event-broker"), ("fish", "complete -c event-broker")]
    {
        let script = run(&["completions", shell]).expect(0).out;
        assert!(script.contains(said) && script.contains("backup"), "{shell}");
    }
}

#[test]
fn tail_ends_when_its_reader_leaves_even_if_no_event_follows() {
    let server = server();
    super::feed(&server, &["publish", "-"], &super::lines(20)).expect(0);
    let (lines, run) = super::first_lines(&server, &["tail", "--from", "earliest"], 20);
    run.expect(0);
    assert_eq!(lines.len(), 20);
}

#[test]
fn a_closed_pipe_ends_everything_quietly() {
    let server = server();
    for number in 0..3 {
        ask(&server, &["topics", "create", &format!("gts.hx.core.events.topic.v1~vendor.t{number}.v1")]).expect(0);
    }
    super::feed(&server, &["publish", "-"], &super::lines(300)).expect(0);
    for arguments in [
        &["tail", "--no-follow", "--json"][..],
        &["tail", "--no-follow"],
        &["tail", "--from", "earliest"],
        &["export"],
        &["export", "--all"],
        &["topics", "list"],
        &["topics", "list", "--json"],
        &["completions", "bash"],
        &["publish", "--help"],
        &["config"],
    ] {
        let (line, run) = first_line(&server, arguments);
        let run = run.expect(0);
        assert!(!line.is_empty(), "{arguments:?}");
        assert!(run.err.is_empty() || run.err.starts_with("event-broker: exported"), "{arguments:?}: {}", run.err);
    }
}
