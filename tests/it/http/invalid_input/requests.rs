//! Paths, queries, headers and methods.

use super::PopulatedServer;

#[tokio::test]
async fn every_parameter_of_a_read_has_its_edges() {
    let stage = PopulatedServer::set().await;
    for path in ["/v1/events", "/v1/events:poll", "/v1/events%3Apoll"] {
        let timeout = if path.ends_with("poll") { "&timeout=0" } else { "" };
        let table = READ.replace("{path}", path).replace("{timeout}", timeout);
        stage.check(&table);
    }
    stage.check(POLL);
    stage.end().await;
}

const READ: &str = "
    GET {path}?topic={T}&offset=0{timeout} -> 200
    GET {path}?topic=gts.hx.core.events.topic.v1%7E&offset=0{timeout} -> 200
    GET {path}?topic=gts%2Ehx.core.events.topic.v1~&offset=0&{timeout} -> 200
    GET {path}?topic={T}{timeout} -> 400 INVALID_OFFSET
    GET {path}?topic={T}&offset={timeout} -> 400 INVALID_OFFSET
    GET {path}?topic={T}&offset{timeout} -> 400 INVALID_OFFSET
    GET {path}?topic={T}&offset=-1{timeout} -> 400 INVALID_OFFSET
    GET {path}?topic={T}&offset=+1{timeout} -> 400 INVALID_OFFSET
    GET {path}?topic={T}&offset=1.0{timeout} -> 400 INVALID_OFFSET
    GET {path}?topic={T}&offset=1e3{timeout} -> 400 INVALID_OFFSET
    GET {path}?topic={T}&offset=0x1{timeout} -> 400 INVALID_OFFSET
    GET {path}?topic={T}&offset=canary{timeout} -> 400 INVALID_OFFSET
    GET {path}?topic={T}&offset=%D9%A1{timeout} -> 400 INVALID_OFFSET
    GET {path}?topic={T}&offset=0&offset=0{timeout} -> 400 INVALID_OFFSET
    GET {path}?topic={T}&offset=9223372036854775807{timeout} -> 200
    GET {path}?topic={T}&offset=9223372036854775808{timeout} -> 400 INVALID_OFFSET
    GET {path}?topic={T}&offset=18446744073709551616{timeout} -> 400 INVALID_OFFSET
    GET {path}?topic={T}&offset=99999999999999999999999999999999999999{timeout} -> 400 INVALID_OFFSET
    GET {path}?offset=0{timeout} -> 422 VALIDATION_ERROR /topic
    GET {path}?topic=&offset=0{timeout} -> 400 INVALID_TYPE
    GET {path}?topic={T}&topic={T}&offset=0{timeout} -> 422 VALIDATION_ERROR /topic
    GET {path}?topic=canary&offset=0{timeout} -> 400 INVALID_TYPE
    GET {path}?topic=gts.*&offset=0{timeout} -> 400 INVALID_TYPE
    GET {path}?topic=gts.{600}.v1~&offset=0{timeout} -> 400 INVALID_TYPE
    GET {path}?topic=gts.vendor.canary.v1~&offset=0{timeout} -> 404 NOT_FOUND
    GET {path}?topic={T}&offset=0&limit=1{timeout} -> 200
    GET {path}?topic={T}&offset=0&limit=100{timeout} -> 200
    GET {path}?topic={T}&offset=0&limit={timeout} -> 422 VALIDATION_ERROR /limit
    GET {path}?topic={T}&offset=0&limit=0{timeout} -> 422 VALIDATION_ERROR /limit
    GET {path}?topic={T}&offset=0&limit=101{timeout} -> 422 VALIDATION_ERROR /limit
    GET {path}?topic={T}&offset=0&limit=-1{timeout} -> 422 VALIDATION_ERROR /limit
    GET {path}?topic={T}&offset=0&limit=canary{timeout} -> 422 VALIDATION_ERROR /limit
    GET {path}?topic={T}&offset=0&limit=18446744073709551617{timeout} -> 422 VALIDATION_ERROR /limit
    GET {path}?topic={T}&offset=0&limit=1&limit=1{timeout} -> 422 VALIDATION_ERROR /limit
    GET {path}?topic={T}&offset=0&surprise=canary{timeout} -> 422 VALIDATION_ERROR /surprise
    GET {path}?topic={T}&offset=0&Limit=1{timeout} -> 422 VALIDATION_ERROR /Limit
    GET {path}?topic={T}&offset=0&a/b~c=1{timeout} -> 422 VALIDATION_ERROR /a~1b~0c
    GET {path}?topic={T}&offset=0&a%00%1Fb=1{timeout} -> 422 VALIDATION_ERROR /a\u{fffd}\u{fffd}b
    GET {path}?topic={T}&offset=0&=1{timeout} -> 422 VALIDATION_ERROR /
    GET {path}?topic={T}&offset=0&subject=%FFcanary{timeout} -> 400 MALFORMED
    GET {path}?topic={T}&offset=0&%FF=1{timeout} -> 400 MALFORMED
    GET {path}?topic={T}&offset=0&subject=%zz{timeout} -> 200
    GET {path}?topic={T}&offset=0&subject=&subject=a%2Fb%3Ac{timeout} -> 200
    GET {path}?topic={T}&offset=0&subject={1100}{timeout} -> 200
    GET {path}?topic={T}&offset=0&source=%00{timeout} -> 200
    GET {path}?topic={T}&offset=0&tenant={tenant}{timeout} -> 200
    GET {path}?topic={T}&offset=0&tenant={timeout} -> 422 VALIDATION_ERROR /tenant
    GET {path}?topic={T}&offset=0&tenant=canary{timeout} -> 422 VALIDATION_ERROR /tenant
    GET {path}?topic={T}&offset=0&tenant=00000000-0000-0000-0000-000000000000{timeout} -> 422 VALIDATION_ERROR /tenant
    GET {path}?topic={T}&offset=0&type=gts.*&type={E}{timeout} -> 200
    GET {path}?topic={T}&offset=0&type={timeout} -> 400 INVALID_TYPE
    GET {path}?topic={T}&offset=0&type=canary{timeout} -> 400 INVALID_TYPE
    GET {path}?topic={T}&offset=0&type=gts.*.canary{timeout} -> 400 INVALID_TYPE
    GET {path}?topic={T}&offset=0&subjectType=gts.vendor.*{timeout} -> 200
    GET {path}?topic={T}&offset=0&subjectType=*{timeout} -> 400 INVALID_TYPE
    GET {path}?topic={T}&offset=0&correlationId={timeout} -> 200
    GET {path}?topic={T}&offset=0&context.app=1&context.app=2{timeout} -> 200
    GET {path}?topic={T}&offset=0&occurredFrom=2025-12-03T12:00:00Z{timeout} -> 200
    GET {path}?topic={T}&offset=0&occurredFrom=2025-12-03T12:00:00+02:00{timeout} -> 200
    GET {path}?topic={T}&offset=0&occurredFrom={timeout} -> 422 VALIDATION_ERROR /occurredFrom
    GET {path}?topic={T}&offset=0&occurredFrom=canary{timeout} -> 422 VALIDATION_ERROR /occurredFrom
    GET {path}?topic={T}&offset=0&occurredTo=2025-02-30T00:00:00Z{timeout} -> 422 VALIDATION_ERROR /occurredTo
    GET {path}?topic={T}&offset=0&occurredTo=2025-12-03{timeout} -> 422 VALIDATION_ERROR /occurredTo
    GET {path}?topic={T}&offset=0&occurredTo=99999-01-01T00:00:00Z{timeout} -> 422 VALIDATION_ERROR /occurredTo
    GET {path}?topic={T}&offset=0&filter=true{timeout} -> 200
    GET {path}?topic={T}&offset=0&filter={timeout} -> 422 VALIDATION_ERROR
    GET {path}?topic={T}&offset=0&filter=canary({timeout} -> 422 VALIDATION_ERROR
    GET {path}?topic={T}&offset=0&filter=canary(1){timeout} -> 422 VALIDATION_ERROR
    GET {path}?topic={T}&offset=0&filter=true&filter=true{timeout} -> 422 VALIDATION_ERROR /filter
    GET {path}?consumer_id={consumer}&offset=0{timeout} -> 200
    GET {path}?consumer_id={consumer}&offset=0&topic=ignored&type=ignored{timeout} -> 200
    GET {path}?consumer_id={consumer}{timeout} -> 400 INVALID_OFFSET
    GET {path}?consumer_id={consumer}&offset=0&limit=0{timeout} -> 422 VALIDATION_ERROR /limit
    GET {path}?consumer_id=&offset=0{timeout} -> 404 NOT_FOUND
    GET {path}?consumer_id=canary&offset=0{timeout} -> 404 NOT_FOUND
    GET {path}?consumer_id={event}&offset=0{timeout} -> 404 NOT_FOUND
";

const POLL: &str = "
    GET /v1/events?topic={T}&offset=0&timeout=1 -> 422 VALIDATION_ERROR /timeout
    GET /v1/events:poll?topic={T}&offset=0&timeout=30 -> 200
    GET /v1/events:poll?topic={T}&offset=0&timeout=31 -> 422 VALIDATION_ERROR /timeout
    GET /v1/events:poll?topic={T}&offset=0&timeout= -> 422 VALIDATION_ERROR /timeout
    GET /v1/events:poll?topic={T}&offset=0&timeout=-1 -> 422 VALIDATION_ERROR /timeout
    GET /v1/events:poll?topic={T}&offset=0&timeout=1.5 -> 422 VALIDATION_ERROR /timeout
    GET /v1/events:poll?topic={T}&offset=0&timeout=99999999999999999999 -> 422 VALIDATION_ERROR /timeout
    GET /v1/events:poll?topic={T}&offset=0&timeout=0&timeout=0 -> 422 VALIDATION_ERROR /timeout
    GET /v1/events:stream?topic={T}&offset=canary -> 400 INVALID_OFFSET
    GET /v1/events:stream?topic={T}&offset=0&offset=0 -> 400 INVALID_OFFSET
    GET /v1/events:stream -> 422 VALIDATION_ERROR /topic
    GET /v1/events:stream?topic={T}&timeout=1 -> 422 VALIDATION_ERROR /timeout
    GET /v1/events:stream?topic=gts.vendor.canary.v1~ -> 404 NOT_FOUND
    GET /v1/events:stream?topic={T}&limit=0 -> 422 VALIDATION_ERROR /limit
    GET /v1/events:stream?topic={T} <last-event-id: canary> -> 400 INVALID_OFFSET
    GET /v1/events:stream?topic={T} <last-event-id: 18446744073709551615> -> 400 INVALID_OFFSET
    GET /v1/events:stream?topic={T} <accept: application/json> -> 406 NOT_ACCEPTABLE
    GET /v1/events:stream?topic={T}&filter=canary -> 422 VALIDATION_ERROR
    GET /v1/log -> 200
    GET /v1/log?after=0&limit=1&timeout=0 -> 200
    GET /v1/log?after=9223372036854775807 -> 200
    GET /v1/log?after=-1 -> 422 VALIDATION_ERROR /after
    GET /v1/log?after= -> 422 VALIDATION_ERROR /after
    GET /v1/log?after=18446744073709551616 -> 422 VALIDATION_ERROR /after
    GET /v1/log?after=0&after=0 -> 422 VALIDATION_ERROR /after
    GET /v1/log?limit=101 -> 422 VALIDATION_ERROR /limit
    GET /v1/log?timeout=31 -> 422 VALIDATION_ERROR /timeout
    GET /v1/log?topic={T} -> 422 VALIDATION_ERROR /topic
    GET /v1/log?offset=0 -> 422 VALIDATION_ERROR /offset
    GET /v1/log?filter=canary -> 422 VALIDATION_ERROR
";

#[tokio::test]
async fn every_list_and_every_id_has_its_edges() {
    let stage = PopulatedServer::set().await;
    for path in [
        "/v1/topics",
        "/v1/event-types",
        "/v1/consumers",
        "/v1/consumer-groups",
        "/v1/projections",
        "/v1/topics/segments",
    ] {
        let more = if path.ends_with("segments") { "topic={T}&" } else { "" };
        stage.check(&LIST.replace("{path}", path).replace("{more}", more));
    }
    stage.check(IDS);
    stage.end().await;
}

const LIST: &str = "
    GET {path}?{more} -> 200
    GET {path}?{more}limit=1 -> 200
    GET {path}?{more}limit=100 -> 200
    GET {path}?{more}limit=0 -> 422 VALIDATION_ERROR /limit
    GET {path}?{more}limit=101 -> 422 VALIDATION_ERROR /limit
    GET {path}?{more}limit= -> 422 VALIDATION_ERROR /limit
    GET {path}?{more}limit=-1 -> 422 VALIDATION_ERROR /limit
    GET {path}?{more}limit=99999999999999999999 -> 422 VALIDATION_ERROR /limit
    GET {path}?{more}limit=1&limit=2 -> 422 VALIDATION_ERROR /limit
    GET {path}?{more}cursor= -> 422 VALIDATION_ERROR /cursor
    GET {path}?{more}cursor=canary -> 422 VALIDATION_ERROR /cursor
    GET {path}?{more}cursor=n61&cursor=n61 -> 422 VALIDATION_ERROR /cursor
    GET {path}?{more}surprise=canary -> 422 VALIDATION_ERROR /surprise
    GET {path}?{more} <accept: text/html> -> 406 NOT_ACCEPTABLE
    GET {path}?{more} <accept: application/cloudevents-batch+json> -> 406 NOT_ACCEPTABLE
    HEAD {path}?{more} -> 200
    HEAD {path}?{more}limit=0 -> 422 VALIDATION_ERROR
";

const IDS: &str = "
    GET /v1/topics?topic= -> 400 INVALID_TYPE
    GET /v1/topics?topic=canary -> 400 INVALID_TYPE
    GET /v1/topics?topic=gts.*.canary -> 400 INVALID_TYPE
    GET /v1/topics?topic=gts.vendor.canary.v1~ -> 200
    GET /v1/topics/{T} -> 200
    GET /v1/topics/gts.hx.core.events.topic.v1%7E -> 200
    GET /v1/topics/gts.hx.core.events.topic.v1 -> 404 NOT_FOUND
    GET /v1/topics/gts.vendor.canary.v1~ -> 404 NOT_FOUND
    GET /v1/topics/canary -> 400 INVALID_TYPE
    GET /v1/topics/gts.*  -> 400 INVALID_TYPE
    GET /v1/topics/%FF -> 400 MALFORMED
    GET /v1/topics/%00 -> 400 INVALID_TYPE
    GET /v1/topics/{600} -> 400 INVALID_TYPE
    GET /v1/topics/ -> 404 NOT_FOUND
    GET /v1/topics/{T}?limit=1 -> 422 VALIDATION_ERROR /limit
    GET /v1/topics/segments -> 422 VALIDATION_ERROR /topic
    GET /v1/topics/segments?topic= -> 400 INVALID_TYPE
    GET /v1/topics/segments?topic=gts.vendor.canary.v1~ -> 404 NOT_FOUND
    GET /v1/topics/segments?topic={T}&$orderby= -> 422 VALIDATION_ERROR /$orderby
    GET /v1/topics/segments?topic={T}&$orderby=canary -> 422 VALIDATION_ERROR /$orderby
    GET /v1/topics/segments?topic={T}&$orderby=rangeStart -> 200
    GET /v1/topics/segments?topic={T}&%24orderby=rangeStart%20desc -> 200
    GET /v1/topics/segments?topic={T}&$orderby=rangeStart,rangeEnd -> 422 VALIDATION_ERROR /$orderby
    GET /v1/topics/segments?topic={T}&$orderby=rangeStart&$orderby=rangeStart -> 422 VALIDATION_ERROR /$orderby
    GET /v1/event-types?type= -> 400 INVALID_TYPE
    GET /v1/event-types?type=gts.* -> 200
    GET /v1/event-types?topic={T} -> 200
    GET /v1/event-types?topic=canary -> 400 INVALID_TYPE
    GET /v1/event-types/{E} -> 200
    GET /v1/event-types/{E}~ -> 200
    GET /v1/event-types/gts.vendor.canary.v1 -> 404 NOT_FOUND
    GET /v1/event-types/canary -> 400 INVALID_TYPE
    GET /v1/event-types/%FF -> 400 MALFORMED
    GET /v1/events/{event} -> 200
    GET /v1/events/{event}?topic={T} -> 422 VALIDATION_ERROR /topic
    GET /v1/events/{tenant} -> 404 NOT_FOUND
    GET /v1/events/canary -> 404 NOT_FOUND
    GET /v1/events/%FF -> 400 MALFORMED
    GET /v1/events/ -> 404 NOT_FOUND
    GET /v1/events/{event}/canary -> 404 NOT_FOUND
    GET /v1/aggregates/{S}/a%2Fb%3Ac%7Ed%20e?topic={T} -> 200
    GET /v1/aggregates/{S}/a%2Fb:c~d%20e/events?topic={T} -> 200
    GET /v1/aggregates/gts.vendor.tenants.tenant.v1/a%2fb%3ac%7ed%20e?topic={T} -> 200
    GET /v1/aggregates/{S}/a/b?topic={T} -> 404 NOT_FOUND
    GET /v1/aggregates/{S}/canary?topic={T} -> 404 NOT_FOUND
    GET /v1/aggregates/{S}/{1100}?topic={T} -> 404 NOT_FOUND
    GET /v1/aggregates/{S}/%00?topic={T} -> 404 NOT_FOUND
    GET /v1/aggregates/{S}/%FF?topic={T} -> 400 MALFORMED
    GET /v1/aggregates/canary/x?topic={T} -> 400 INVALID_TYPE
    GET /v1/aggregates/{S}/x -> 422 VALIDATION_ERROR /topic
    GET /v1/aggregates/{S}/x?topic=gts.vendor.canary.v1~ -> 404 NOT_FOUND
    GET /v1/aggregates/{S}/x?topic=gts.* -> 400 INVALID_TYPE
    GET /v1/aggregates/{S}/x?topic={T}&limit=1 -> 422 VALIDATION_ERROR /limit
    GET /v1/aggregates/{S}/x/events?topic={T}&limit=0 -> 422 VALIDATION_ERROR /limit
    GET /v1/aggregates/{S}/x/events?topic={T}&after=-1 -> 422 VALIDATION_ERROR /after
    GET /v1/aggregates/{S}/x/events?topic={T}&after=canary -> 422 VALIDATION_ERROR /after
    GET /v1/consumers?consumerGroup= -> 200
    GET /v1/consumers?consumerGroup=a&consumerGroup=b -> 422 VALIDATION_ERROR /consumerGroup
    GET /v1/consumers/{consumer} -> 200
    GET /v1/consumers/{event} -> 404 NOT_FOUND
    GET /v1/consumers/canary -> 404 NOT_FOUND
    GET /v1/consumers/%FF -> 400 MALFORMED
    DELETE /v1/consumers/{event} -> 404 NOT_FOUND
    DELETE /v1/consumers/canary -> 404 NOT_FOUND
    DELETE /v1/consumers/{consumer}?force=true -> 422 VALIDATION_ERROR /force
    GET /v1/consumer-groups/canary -> 404 NOT_FOUND
    GET /v1/consumer-groups/g -> 200
    GET /v1/consumer-groups/%67 -> 200
    GET /v1/consumer-groups/{600} -> 404 NOT_FOUND
    GET /v1/consumer-groups/%FF -> 400 MALFORMED
";

#[tokio::test]
async fn methods_media_types_and_encodings_have_their_edges() {
    let stage = PopulatedServer::set().await;
    stage.check(METHODS);
    stage.check(FORMS);
    for (method, path, allow) in [
        ("DELETE", "/v1/events", "GET,HEAD,POST"),
        ("GET", "/v1/events:batch", "POST"),
        ("PUT", "/v1/topics", "GET,HEAD,POST"),
        ("OPTIONS", "/v1/topics", "GET,HEAD,POST"),
        ("POST", "/healthz", "GET,HEAD"),
        ("POST", "/v1/consumer-groups/g", "GET, HEAD, DELETE"),
        ("POST", "/v1/topics/{T}", "GET,HEAD,PATCH,DELETE"),
        ("PATCH", "/v1/consumers/{consumer}", "GET,HEAD,DELETE"),
        ("PATCH", "/v1/consumers/{consumer}:commit", "POST"),
        ("GET", "/v1/consumers/{consumer}:commit", "POST"),
    ] {
        let reply = stage.send(&stage.filled(&format!("{method} {path}")));
        let words =
            |text: &str| text.split(',').map(|word| word.trim().to_owned()).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(words(reply.header("allow").unwrap_or_default()), words(allow), "{method} {path}");
    }
    stage.end().await;
}

const METHODS: &str = "
    DELETE /v1/events -> 405 METHOD_NOT_ALLOWED
    PATCH /v1/events -> 405 METHOD_NOT_ALLOWED
    GET /v1/events:batch -> 405 METHOD_NOT_ALLOWED
    GET /v1/events:import -> 405 METHOD_NOT_ALLOWED
    POST /v1/events:poll -> 405 METHOD_NOT_ALLOWED
    POST /v1/events:stream -> 405 METHOD_NOT_ALLOWED
    DELETE /v1/events/{event} -> 405 METHOD_NOT_ALLOWED
    PUT /v1/events/{event} -> 405 METHOD_NOT_ALLOWED
    POST /v1/log -> 405 METHOD_NOT_ALLOWED
    PUT /v1/topics -> 405 METHOD_NOT_ALLOWED
    POST /v1/topics/{T} -> 405 METHOD_NOT_ALLOWED
    POST /v1/topics/segments -> 405 METHOD_NOT_ALLOWED
    DELETE /v1/event-types/{E} -> 409 INVALID_STATE
    POST /v1/event-types/{E} -> 405 METHOD_NOT_ALLOWED
    POST /v1/aggregates/{S}/x -> 405 METHOD_NOT_ALLOWED
    PUT /v1/consumers -> 405 METHOD_NOT_ALLOWED
    PATCH /v1/consumers/{consumer} -> 405 METHOD_NOT_ALLOWED
    POST /v1/consumers/{consumer} -> 405 METHOD_NOT_ALLOWED
    GET /v1/consumers/{consumer}:commit -> 405 METHOD_NOT_ALLOWED
    POST /v1/consumers/{consumer}:canary -> 404 NOT_FOUND
    POST /v1/consumer-groups/g -> 405 METHOD_NOT_ALLOWED
    POST /v1/consumer-groups/g:canary -> 404 NOT_FOUND
    PUT /v1/consumer-groups/g -> 405 METHOD_NOT_ALLOWED
    POST /v1/topics/{T}:canary -> 404 NOT_FOUND
    POST /healthz -> 405 METHOD_NOT_ALLOWED
    OPTIONS /v1/topics -> 405 METHOD_NOT_ALLOWED
    BREW /v1/topics -> 405 METHOD_NOT_ALLOWED
    GET /canary -> 404 NOT_FOUND
    GET /v2/events -> 404 NOT_FOUND
    GET /V1/events -> 404 NOT_FOUND
    GET /v1//events -> 404 NOT_FOUND
    GET /v1/../v1/topics -> 404 NOT_FOUND
    HEAD /v1/events?topic={T}&offset=0 -> 200
    HEAD /v1/events/{event} -> 200
    HEAD /v1/events/{tenant} -> 404 NOT_FOUND
    HEAD /v1/topics/{T} -> 200
    HEAD /healthz -> 200
    HEAD /v1/events:batch -> 405 METHOD_NOT_ALLOWED
    HEAD /canary -> 404 NOT_FOUND
    GET /healthz -> 200
    GET /readyz -> 200
";

const FORMS: &str = "
    POST /v1/events <content-type: text/plain> canary -> 415 UNSUPPORTED_MEDIA_TYPE
    POST /v1/events <content-type: application/x-www-form-urlencoded> a=canary -> 415 UNSUPPORTED_MEDIA_TYPE
    POST /v1/events <content-type: > {} -> 415 UNSUPPORTED_MEDIA_TYPE
    POST /v1/events <content-type: application/jsonx> {} -> 415 UNSUPPORTED_MEDIA_TYPE
    POST /v1/events <content-encoding: gzip> {} -> 415 UNSUPPORTED_MEDIA_TYPE
    POST /v1/events <content-encoding: br> {} -> 415 UNSUPPORTED_MEDIA_TYPE
    POST /v1/events <accept: text/html> {} -> 406 NOT_ACCEPTABLE
    POST /v1/events <accept: application/json;q=0> {} -> 406 NOT_ACCEPTABLE
    POST /v1/events:batch <content-type: text/xml> <x/> -> 415 UNSUPPORTED_MEDIA_TYPE
    POST /v1/events:batch <content-type: application/cloudevents+json> {} -> 415 UNSUPPORTED_MEDIA_TYPE
    POST /v1/events:import <content-type: text/xml> <x/> -> 415 UNSUPPORTED_MEDIA_TYPE
    POST /v1/topics <content-type: text/xml> <x/> -> 415 UNSUPPORTED_MEDIA_TYPE
    POST /v1/event-types <content-type: text/xml> <x/> -> 415 UNSUPPORTED_MEDIA_TYPE
    POST /v1/consumers <content-type: text/xml> <x/> -> 415 UNSUPPORTED_MEDIA_TYPE
    POST /v1/consumers/{consumer}:commit <content-type: text/xml> <x/> -> 415 UNSUPPORTED_MEDIA_TYPE
    POST /v1/consumer-groups/g:reset <content-type: text/xml> <x/> -> 415 UNSUPPORTED_MEDIA_TYPE
    PUT /v1/projections/p <content-type: text/xml> <x/> -> 415 UNSUPPORTED_MEDIA_TYPE
    POST /v1/projections/p:checkpoint <content-type: text/xml> <x/> -> 415 UNSUPPORTED_MEDIA_TYPE
    POST /v1/projections/p:reset <content-type: text/xml> <x/> -> 415 UNSUPPORTED_MEDIA_TYPE
    GET /v1/projections/p <accept: text/html> -> 406 NOT_ACCEPTABLE
    GET /v1/projections/p:wait?offset=0 <accept: text/html> -> 406 NOT_ACCEPTABLE
    PATCH /v1/topics/{T} <content-type: text/xml> <x/> -> 415 UNSUPPORTED_MEDIA_TYPE
    GET /v1/events?topic={T}&offset=0 <accept: text/html> -> 406 NOT_ACCEPTABLE
    GET /v1/events?topic={T}&offset=0 <accept: > -> 406 NOT_ACCEPTABLE
    GET /v1/events?topic={T}&offset=0 <accept: text/html, */*;q=0.1> -> 200
    GET /v1/events?topic={T}&offset=0 <accept: APPLICATION/JSON> -> 200
    GET /v1/events?topic={T}&offset=0 <accept: application/cloudevents-batch+json> -> 200
    GET /v1/events/{event} <accept: application/cloudevents+json> -> 200
    POST /v1/events <producer-id: > {\"type\":\"{E}\",\"source\":\"s\",\"data\":{}} -> 422 VALIDATION_ERROR
    POST /v1/events <producer-id: {600}> {\"type\":\"{E}\",\"source\":\"s\",\"data\":{}} -> 422 VALIDATION_ERROR
    POST /v1/events?waitFor=canary {} -> 422 VALIDATION_ERROR /waitFor
    POST /v1/events?timeout=-1 {} -> 422 VALIDATION_ERROR /timeout
    POST /v1/events?timeout=31 {} -> 422 VALIDATION_ERROR /timeout
    POST /v1/events?timeout= {} -> 422 VALIDATION_ERROR /timeout
    POST /v1/events:batch?timeout=1.5 {} -> 422 VALIDATION_ERROR /timeout
    POST /v1/events?atomic=all {} -> 422 VALIDATION_ERROR /atomic
    POST /v1/events:batch?atomic=canary {} -> 422 VALIDATION_ERROR /atomic
    POST /v1/events:batch?atomic= {} -> 422 VALIDATION_ERROR /atomic
    POST /v1/events:batch?atomic=all&atomic=all {} -> 422 VALIDATION_ERROR /atomic
    POST /v1/topics?surprise=canary {} -> 422 VALIDATION_ERROR /surprise
    POST /v1/event-types?surprise=canary {} -> 422 VALIDATION_ERROR /surprise
    POST /v1/consumers?surprise=canary {} -> 422 VALIDATION_ERROR /surprise
";
