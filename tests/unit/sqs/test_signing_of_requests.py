"""What we sign is what botocore signs, and what our own verifier accepts."""

from datetime import UTC, datetime
from unittest.mock import patch
from urllib.parse import quote, urlencode

import pytest
from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials as Botocredentials  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.sqs.auth import sigv4
from penstock.sqs.auth.credentials import AccessKey, Credentials, KeyRole, Principal
from penstock.sqs.auth.signer import Signer
from penstock.sqs.errors import SqsError
from penstock.sqs.wire.protocol import SignedRequest

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
ALICE = Principal("ALICE", KeyRole.CLIENT)
KNOWN = Credentials.of([AccessKey(ALICE, SECRET)])
NOW = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
NOW_MS = int(NOW.timestamp()) * 1000 + 789

segments = st.one_of(st.sampled_from(["", ".", "..", "orders.fifo", "~"]), st.text(max_size=8).map(quote))
paths = st.lists(segments, max_size=5).map(lambda parts: "/" + "/".join(parts))
words = st.text(st.characters(codec="utf-8"), max_size=12)
queries = st.lists(st.tuples(words, words), max_size=4).map(lambda pairs: urlencode(pairs, quote_via=quote, safe="~"))
values = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
header_sets = st.dictionaries(st.sampled_from(["X-Amz-Target", "Content-Type", "X-Amz-Meta", "Accept"]), values)
methods = st.sampled_from(["GET", "POST"])
regions = st.sampled_from(["us-east-1", "eu-central-1"])
tokens = st.none() | st.text("abcXYZ019+/=", min_size=1, max_size=40)


def unsigned(method: str, path: str, query: str, headers: dict[str, str], body: bytes) -> SignedRequest:
    raw = [(b"Host", b"localhost:9324"), *((name.encode(), value.encode()) for name, value in headers.items())]
    return SignedRequest(method, path.encode(), query.encode(), raw, body)


def header_of(request: SignedRequest, name: bytes) -> str:
    return next(value.decode() for key, value in request.headers if key == name)


@given(methods, paths, queries, header_sets, st.binary(max_size=60), regions, tokens)
def test_the_signature_is_botocores_and_our_verifier_takes_it(
    method: str, path: str, query: str, headers: dict[str, str], body: bytes, region: str, token: str | None
) -> None:
    theirs = AWSRequest(method, f"http://localhost:9324{path}?{query}", dict(headers), body)
    with patch("botocore.auth.get_current_datetime", return_value=NOW.replace(tzinfo=None)):
        SigV4Auth(Botocredentials("ALICE", SECRET, token), "sqs", region).add_auth(theirs)

    ours = Signer("ALICE", SECRET, region, token).signed(unsigned(method, path, query, headers, body), NOW_MS)

    assert header_of(ours, b"Authorization") == theirs.headers["Authorization"]
    assert header_of(ours, b"X-Amz-Date") == theirs.headers["X-Amz-Date"]
    assert sigv4.verify(ours, KNOWN, NOW_MS) == (ALICE, region)


@pytest.mark.parametrize(
    "change",
    [{"body": b"other"}, {"path": b"/other"}, {"query_string": b"limit=11"}, {"method": "PUT"}],
    ids=lambda change: next(iter(change)),
)
def test_what_is_changed_afterwards_is_refused(change: dict[str, bytes | str]) -> None:
    request = unsigned("GET", "/admin/queues/orders/messages", "limit=10", {}, b"{}")
    signed = Signer("ALICE", SECRET, "us-east-1").signed(request, NOW_MS)

    with pytest.raises(SqsError, match="signature does not match"):
        sigv4.verify(replace(signed, **change), KNOWN, NOW_MS)


def test_the_session_token_is_sent_and_signed() -> None:
    signed = Signer("ALICE", SECRET, "us-east-1", "token").signed(unsigned("POST", "/", "", {}, b""), NOW_MS)

    assert header_of(signed, b"X-Amz-Security-Token") == "token"
    assert "SignedHeaders=host;x-amz-date;x-amz-security-token" in header_of(signed, b"Authorization")


def test_secrets_are_not_shown() -> None:
    shown = repr(Signer("ALICE", SECRET, "us-east-1", "a token"))

    assert "ALICE" in shown
    assert SECRET not in shown
    assert "a token" not in shown
