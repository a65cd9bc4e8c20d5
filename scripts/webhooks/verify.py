"""Reads deliveries with the Standard Webhooks and CloudEvents packages: they must verify, altered ones must not."""

import base64
import json
import pathlib
import sys

from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

FORMATS = ["cloudevents-binary", "cloudevents-structured", "data-only", "event"]


def refused(secret, body, headers):
    try:
        Webhook(secret).verify(body, headers)
    except WebhookVerificationError:
        return
    raise AssertionError("an altered delivery still verifies")


def check_signature(delivery, body):
    headers = delivery["headers"]
    assert len(delivery["secrets"]) == 2
    for secret in delivery["secrets"]:
        assert Webhook(secret).verify(body, headers) == json.loads(body)
        refused(secret, body + b" ", headers)
        refused(secret, body, {**headers, "webhook-id": "another"})
        refused(secret, body, {**headers, "webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)})
    refused("whsec_" + base64.b64encode(bytes(32)).decode(), body, headers)


def check_cloud_event(delivery, body):
    ours = json.loads(delivery["event"])
    event = from_http_event(HTTPMessage(headers=delivery["headers"], body=body))
    assert (event.get_id(), event.get_type()) == (ours["id"], ours["type"])
    assert (event.get_source(), event.get_subject()) == (ours["source"], ours["subject"])
    assert event.get_data() == ours["data"], event.get_data()
    attributes = event.get_attributes()
    expected = {"topic": ours["topic"], "sequence": str(ours["sequence"]), "traceparent": ours["traceParent"],
                "appid": "web", "context": '{"Region":"eu"}'}
    for name, value in expected.items():
        assert attributes.get(name) == value, (name, attributes)


def main(folder):
    files = sorted(pathlib.Path(folder).glob("*.json"))
    assert [file.stem for file in files] == FORMATS, files
    for file in files:
        delivery = json.loads(file.read_text())
        body = base64.b64decode(delivery["body"])
        check_signature(delivery, body)
        if file.stem.startswith("cloudevents"):
            check_cloud_event(delivery, body)
    print("Python verifies the signatures and reads the CloudEvents")


main(sys.argv[1])
