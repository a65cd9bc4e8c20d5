"""What schemathesis does not know by itself: how lines are written, and that nobody here has time to wait."""

import itertools
import json

import schemathesis

WAITS = {str(seconds) for seconds in range(1, 31)}
KEY, EXAMPLE = "Idempotency-Key", "9b2c61f0-signup-7f3a"
NUMBERS = itertools.count()


@schemathesis.serializer("application/x-ndjson", "application/ndjson", "application/jsonl")
def lines(ctx, value):
    if isinstance(value, (str, bytes)):
        return value
    rows = value if isinstance(value, list) else [value]
    return "\n".join(json.dumps(row) for row in rows).encode()


@schemathesis.hook
def before_call(ctx, case, kwargs):
    """A time-out that is as it should be becomes none: what is tested is the answer, not the wait.

    And the key of the examples becomes a new one: under one and the same, everything after the first is a reuse.
    """
    if case.headers and case.headers.get(KEY) == EXAMPLE:
        case.headers[KEY] = f"{EXAMPLE}-{next(NUMBERS)}"
    if case.query and str(case.query.get("timeout")) in WAITS:
        case.query["timeout"] = 0
