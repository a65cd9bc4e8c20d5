"""Hooks for schemathesis: they serialise line-delimited bodies, and replace time-outs so that no request waits."""

import itertools
import json
import re

import schemathesis

WAITS = {str(seconds) for seconds in range(1, 31)}
KEY, EXAMPLE = "Idempotency-Key", "9b2c61f0-signup-7f3a"
NUMBERS = itertools.count()
# The name of an unknown header field. A server ignores unknown fields (RFC 9110 5.1), so it makes no request invalid.
UNKNOWN_HEADER = "x-schemathesis-unknown-property"
# An identifier that is not a GTS id is a code of at most 200 bytes. A pattern for that needs a look-ahead, which not
# every reader of the document supports; so the document has none, and longer codes are not sent.
# contract/src/identifier/code_tests.rs tests them.
LONG_CODE = re.compile(r"(?!gts\.)[A-Za-z0-9_.:*-]{201,}", re.IGNORECASE)


def texts(value):
    """Every text in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from texts(member)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


@schemathesis.hook
def filter_case(ctx, case):
    """Skips cases that the document cannot describe and that the project has decided."""
    if case.headers and any(name.lower() == UNKNOWN_HEADER for name in case.headers):
        return False
    places = [dict(case.path_parameters or {}), dict(case.query or {}), case.body]
    return not any(LONG_CODE.fullmatch(text) for place in places for text in texts(place))


@schemathesis.serializer("application/x-ndjson", "application/ndjson", "application/jsonl")
def lines(ctx, value):
    if isinstance(value, (str, bytes)):
        return value
    rows = value if isinstance(value, list) else [value]
    return "\n".join(json.dumps(row) for row in rows).encode()


@schemathesis.hook
def before_call(ctx, case, kwargs):
    """Replaces a valid time-out by 0: the response is tested, not the wait.

    Replaces the key of the examples by a new one: under the same key, every request after the first is a reuse.
    """
    if case.headers and case.headers.get(KEY) == EXAMPLE:
        case.headers[KEY] = f"{EXAMPLE}-{next(NUMBERS)}"
    if case.query and str(case.query.get("timeout")) in WAITS:
        case.query["timeout"] = 0
