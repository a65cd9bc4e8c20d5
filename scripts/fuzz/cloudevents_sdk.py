"""The CloudEvents SDK calls a running broker: the broker accepts its events, and the SDK can read the responses."""

import json
import sys
import urllib.request

from cloudevents.core.bindings.http import (
    HTTPMessage,
    from_http_event,
    to_binary_event,
    to_structured_event,
)
from cloudevents.core.v1.event import CloudEvent

TYPE = "gts.hyperspot.core.events.type.v1~vendor.tenants.tenant_created.v1"
TENANT = "a1b2c3d4-e5f6-7890-abcd-ef1234567890"


def call(url, headers, body=None):
    request = urllib.request.Request(url, data=body, headers=headers)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        return answer.status, dict(answer.headers), answer.read()


def made(subject):
    attributes = {"type": TYPE, "source": "/sdk/é", "subject": subject, "tenant": TENANT, "appid": "sdk",
                  "correlationid": "100 % \"quoted\""}
    return CloudEvent(attributes, {"text": "é", "list": [1, 2.5, None]})


def same(sent, got):
    assert got.get_data() == sent.get_data(), (got.get_data(), sent.get_data())
    for name, value in sent.get_attributes().items():
        there = got.get_attributes().get(name)
        if name == "time":  # The broker stores milliseconds.
            assert abs((there - value).total_seconds()) < 0.001, (there, value)
            continue
        assert there == value, (name, there, value)


def main(base):
    for number, form in enumerate([to_structured_event, to_binary_event]):
        sent = made(f"sdk {number}/é")
        message = form(sent)
        headers = {**message.headers}
        headers.setdefault("content-type", headers.pop("Content-Type", "application/json"))
        status, _, body = call(f"{base}/v1/events", headers, message.body)
        assert status == 201, (status, body)
        address = f"{base}/v1/events/{sent.get_id()}"
        status, headers, body = call(address, {"accept": "application/cloudevents+json"})
        headers = {name.lower(): value for name, value in headers.items()}
        same(sent, from_http_event(HTTPMessage(headers=headers, body=body)))
    sent = [made(f"sdk batch {number}") for number in range(3)]
    batch = b"[" + b",".join(to_structured_event(event).body for event in sent) + b"]"
    media = "application/cloudevents-batch+json"
    status, _, body = call(f"{base}/v1/events:batch", {"content-type": media}, batch)
    assert status == 207 and json.loads(body)["meta"]["succeeded"] == 3, body
    query = "topic=gts.hx.core.events.topic.v1~&offset=0&source=/sdk/%C3%A9&limit=100"
    status, headers, body = call(f"{base}/v1/events?{query}", {"accept": media})
    out = [json.dumps(event).encode() for event in json.loads(body)]
    assert len(out) == 5 and headers["next-offset"] == headers["tail"], (len(out), headers)
    for sent, text in zip(sent, out[2:]):
        message = HTTPMessage(headers={"content-type": "application/cloudevents+json"}, body=text)
        same(sent, from_http_event(message))
    print("the CloudEvents SDK reads the events it sent: structured, binary and batched")


main(sys.argv[1])
