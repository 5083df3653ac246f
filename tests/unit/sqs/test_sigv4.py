"""Signatures: whatever botocore signs is accepted, whatever is changed afterwards is not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from unittest.mock import patch
from urllib.parse import quote, urlencode, urlsplit

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials as Botocredentials  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.domain.signing import aws_signing_key
from penstock.sqs.auth import sigv4
from penstock.sqs.auth.credentials import AccessKey, Credentials, KeyRole, Principal
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.wire.protocol import SignedRequest

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
ALICE = Principal("ALICE", KeyRole.CLIENT)
KNOWN = Credentials.of(
    [AccessKey(ALICE, SECRET), AccessKey(Principal("BOB", KeyRole.ADMIN), "another secret of bob's")],
)
NOW = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
NOW_MS = int(NOW.timestamp()) * 1000
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@contextmanager
def at(moment: datetime) -> Iterator[None]:
    with patch("botocore.auth.get_current_datetime", return_value=moment.replace(tzinfo=None)):
        yield


def as_received(request: AWSRequest) -> SignedRequest:
    """What a server gets of a request that botocore signed."""
    url = urlsplit(request.url)
    headers = [(name.encode(), str(value).encode()) for name, value in request.headers.items()]
    if "host" not in request.headers:
        headers.append((b"Host", url.netloc.encode()))
    body = request.body or b""
    return SignedRequest(request.method, url.path.encode() or b"/", url.query.encode(), headers, body)


def signed(
    method: str = "POST",
    url: str = "http://localhost:9324/",
    headers: dict[str, str] | None = None,
    body: bytes = b"{}",
    *,
    access_key: str = "ALICE",
    secret: str = SECRET,
    region: str = "eu-central-1",
    service: str = "sqs",
    moment: datetime = NOW,
    expires_s: int | None = None,
) -> SignedRequest:
    known = Botocredentials(access_key, secret)
    request = AWSRequest(method, url, headers or {}, body)
    if expires_s is None:
        signer = SigV4Auth(known, service, region)
    else:
        signer = SigV4QueryAuth(known, service, region, expires=expires_s)
    with at(moment):
        signer.add_auth(request)
    return as_received(request)


def header_of(request: SignedRequest, name: bytes) -> bytes:
    return next(value for key, value in request.headers if key.lower() == name)


def with_header(request: SignedRequest, name: bytes, value: bytes | None) -> SignedRequest:
    kept = [(key, old) for key, old in request.headers if key.lower() != name]
    return replace(request, headers=kept if value is None else [*kept, (name, value)])


def with_authorization(request: SignedRequest, old: bytes, new: bytes) -> SignedRequest:
    authorization = header_of(request, b"authorization")
    assert old in authorization
    return with_header(request, b"authorization", authorization.replace(old, new))


def refusal(request: SignedRequest, now_ms: int = NOW_MS) -> ErrorKind:
    with pytest.raises(SqsError) as caught:
        sigv4.verify(request, KNOWN, now_ms)
    assert caught.value.kind.status == 403
    assert SECRET not in caught.value.message
    return caught.value.kind


segments = st.one_of(st.sampled_from(["", ".", "..", "a", "queue.fifo", "...", "~"]), st.text(max_size=8).map(quote))
paths = st.lists(segments, max_size=5).map(lambda parts: "/" + "/".join(parts))
words = st.text(st.characters(codec="utf-8"), max_size=12)
queries = st.lists(st.tuples(words, words), max_size=5).map(lambda pairs: urlencode(pairs, quote_via=quote, safe="~"))
values = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
header_sets = st.dictionaries(
    st.sampled_from(["X-Amz-Target", "Content-Type", "X-Amz-Meta", "User-Agent", "Accept", "Amz-Sdk-Request"]), values
)
methods = st.sampled_from(["GET", "POST", "PUT"])
bodies = st.binary(max_size=60)


@given(methods, paths, queries, header_sets, bodies, st.sampled_from(["us-east-1", "x"]))
def test_what_botocore_signs_is_accepted(
    method: str, path: str, query: str, headers: dict[str, str], body: bytes, region: str
) -> None:
    request = signed(method, f"http://localhost:9324{path}?{query}", headers, body, region=region)
    assert sigv4.verify(request, KNOWN, NOW_MS) == (ALICE, region)


@given(paths, queries, bodies, st.integers(1, 604_800))
def test_what_botocore_presigns_is_accepted(path: str, query: str, body: bytes, expires_s: int) -> None:
    # botocore moves a body into the query when it presigns; a body sent along is signed by its hash.
    request = signed("GET", f"http://localhost:9324{path}?{query}", {}, b"", expires_s=expires_s)
    assert sigv4.verify(request, KNOWN, NOW_MS)[0] == ALICE
    if body:
        assert refusal(replace(request, body=body)) is ErrorKind.SIGNATURE_DOES_NOT_MATCH


CHANGES: list[Callable[[SignedRequest, bytes], SignedRequest]] = [
    lambda request, junk: replace(request, method="PUT" if request.method != "PUT" else "GET"),
    lambda request, junk: replace(request, path=request.path + b"x" + junk.hex().encode()),
    lambda request, junk: replace(request, query_string=request.query_string + b"&x=" + junk.hex().encode()),
    lambda request, junk: replace(request, body=request.body + b"x" + junk),
    lambda request, junk: with_header(request, b"x-amz-target", b"AmazonSQS.DeleteQueue"),
    lambda request, junk: with_header(request, b"x-amz-target", None),
    lambda request, junk: replace(request, headers=[*request.headers, (b"X-Amz-Target", b"AmazonSQS.DeleteQueue")]),
    lambda request, junk: with_header(request, b"host", b"elsewhere"),
    lambda request, junk: with_header(request, b"x-amz-date", b"20260203T040507Z"),
    lambda request, junk: with_header(request, b"x-amz-content-sha256", b"UNSIGNED-PAYLOAD"),
    lambda request, junk: with_authorization(request, b"Credential=ALICE", b"Credential=BOB"),
    lambda request, junk: with_authorization(request, b"/eu-central-1/", b"/us-east-1/"),
    lambda request, junk: with_authorization(request, b";x-amz-date", b""),
    lambda request, junk: with_authorization(request, b"host;", b"host;accept;"),
]


@given(methods, paths, queries, bodies, st.sampled_from(CHANGES), st.binary(max_size=4))
def test_whatever_is_changed_is_noticed(
    method: str,
    path: str,
    query: str,
    body: bytes,
    change: Callable[[SignedRequest, bytes], SignedRequest],
    junk: bytes,
) -> None:
    headers = {"X-Amz-Target": "AmazonSQS.SendMessage", "Accept": "*/*"}
    request = signed(method, f"http://localhost:9324{path}?{query}", headers, body)
    assert sigv4.verify(request, KNOWN, NOW_MS)[0] == ALICE
    changed = change(request, junk)
    if changed != request:
        refusal(changed)


@given(st.integers(0, 63), st.sampled_from("0123456789abcdefABCDEF\xe9 "))
def test_every_digit_of_the_signature_counts(position: int, digit: str) -> None:
    request = signed()
    before, _, signature = header_of(request, b"authorization").decode().partition("Signature=")
    forged = signature[:position] + digit + signature[position + 1 :]
    if forged != signature:
        authorization = f"{before}Signature={forged}".encode("latin-1")
        assert refusal(with_header(request, b"authorization", authorization)) is ErrorKind.SIGNATURE_DOES_NOT_MATCH


def test_header_values_are_compared_without_extra_white_space() -> None:
    request = signed(headers={"X-Amz-Meta": "a b"})
    assert sigv4.verify(with_header(request, b"x-amz-meta", b"  a   b "), KNOWN, NOW_MS)[0] == ALICE


def test_several_headers_of_one_name_are_one_list() -> None:
    request = signed(headers={"X-Amz-Meta": "a,b"})
    kept = with_header(request, b"x-amz-meta", None)
    split = replace(kept, headers=[*kept.headers, (b"x-amz-meta", b"a"), (b"X-Amz-Meta", b"b")])
    assert sigv4.verify(split, KNOWN, NOW_MS)[0] == ALICE


def test_headers_that_were_not_signed_may_change() -> None:
    request = replace(signed(), headers=[*signed().headers, (b"x-forwarded-for", b"::1"), (b"user-agent", b"x")])
    assert sigv4.verify(request, KNOWN, NOW_MS)[0] == ALICE


def test_a_plus_in_the_query_is_a_space_as_it_is_to_the_form_parser() -> None:
    request = signed("GET", "http://h/?Action=ListQueues&QueueNamePrefix=a%20b", body=b"")
    assert (
        sigv4.verify(replace(request, query_string=b"Action=ListQueues&QueueNamePrefix=a+b"), KNOWN, NOW_MS)[0] == ALICE
    )
    request = signed("GET", "http://h/?QueueNamePrefix=a%2Bb", body=b"")
    assert refusal(replace(request, query_string=b"QueueNamePrefix=a+b")) is ErrorKind.SIGNATURE_DOES_NOT_MATCH


def test_a_body_with_its_hash_in_a_header() -> None:
    assert sigv4.verify(signed(headers={"X-Amz-Content-SHA256": EMPTY}, body=b""), KNOWN, NOW_MS)[0] == ALICE
    lied = signed(headers={"X-Amz-Content-SHA256": EMPTY}, body=b"other")
    assert refusal(lied) is ErrorKind.SIGNATURE_DOES_NOT_MATCH


def test_an_unsigned_payload_is_the_signers_choice() -> None:
    request = signed(headers={"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}, body=b"a")
    assert sigv4.verify(replace(request, body=b"b"), KNOWN, NOW_MS)[0] == ALICE


def test_the_date_header_serves_when_there_is_no_other() -> None:
    request = signed(headers={"Date": format_datetime(NOW, usegmt=True)})
    assert not [name for name, _ in request.headers if name.lower() == b"x-amz-date"]
    assert sigv4.verify(request, KNOWN, NOW_MS)[0] == ALICE
    for text in (b"yesterday", b"", b"Tue, 99 Feb 2026 04:05:06 GMT", b"Mon, 01 Jan 0001 00:00:00 +2359"):
        assert refusal(with_header(request, b"date", text)) in (
            ErrorKind.INCOMPLETE_SIGNATURE,
            ErrorKind.REQUEST_TIME_TOO_SKEWED,
        )


def test_a_request_that_is_not_signed() -> None:
    bare = SignedRequest("POST", b"/", b"Action=ListQueues", [(b"host", b"h")], b"")
    assert refusal(bare) is ErrorKind.MISSING_AUTHENTICATION_TOKEN


def test_a_key_that_is_not_known() -> None:
    assert refusal(signed(access_key="EVE")) is ErrorKind.INVALID_CLIENT_TOKEN_ID


def test_a_wrong_secret() -> None:
    assert refusal(signed(secret=SECRET + "x")) is ErrorKind.SIGNATURE_DOES_NOT_MATCH


def test_another_service() -> None:
    assert refusal(signed(service="sns")) is ErrorKind.SIGNATURE_DOES_NOT_MATCH


@pytest.mark.parametrize(("offset_s", "accepted"), [(-901, False), (-900, True), (900, True), (901, False)])
def test_clocks_may_differ_by_15_minutes(offset_s: int, accepted: bool) -> None:
    request = signed(moment=NOW + timedelta(seconds=offset_s))
    if accepted:
        assert sigv4.verify(request, KNOWN, NOW_MS)[0] == ALICE
    else:
        assert refusal(request) is ErrorKind.REQUEST_TIME_TOO_SKEWED


@pytest.mark.parametrize(("later_s", "accepted"), [(-901, False), (-900, True), (60, True), (61, False)])
def test_a_presigned_request_expires(later_s: int, accepted: bool) -> None:
    request = signed("GET", "http://h/?Action=ListQueues", body=b"", expires_s=60)
    now_ms = NOW_MS + later_s * 1000
    if accepted:
        assert sigv4.verify(request, KNOWN, now_ms)[0] == ALICE
    else:
        assert refusal(request, now_ms) is ErrorKind.REQUEST_TIME_TOO_SKEWED


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (b"AWS4-HMAC-SHA256", b"AWS4-ECDSA-P256-SHA256", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"AWS4-HMAC-SHA256 ", b"AWS4-HMAC-SHA256", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"Credential=", b"Credentials=", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"SignedHeaders=", b"Headers=", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"Signature=", b"Sig=", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"Signature=", b"Signature=,x=", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"Signature=", b"Signature=1, Signature=", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"/aws4_request", b"/aws4", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"/sqs/", b"/", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"/eu-central-1/", b"//", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"=host;", b"=", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"/20260203/", b"/20260204/", ErrorKind.SIGNATURE_DOES_NOT_MATCH),
        (b"=host;", b"=host;absent;", ErrorKind.SIGNATURE_DOES_NOT_MATCH),
    ],
)
def test_a_malformed_authorization(old: bytes, new: bytes, kind: ErrorKind) -> None:
    assert refusal(with_authorization(signed(), old, new)) is kind


@pytest.mark.parametrize("stamp", [None, b"", b"2026", b"20260203T040506", b"20261303T040506Z", b"00000101T000000Z"])
def test_a_missing_or_malformed_date(stamp: bytes | None) -> None:
    assert refusal(with_header(signed(), b"x-amz-date", stamp)) is ErrorKind.INCOMPLETE_SIGNATURE


def test_the_target_must_be_signed() -> None:
    request = with_header(signed(), b"x-amz-target", b"AmazonSQS.DeleteQueue")
    assert refusal(request) is ErrorKind.INCOMPLETE_SIGNATURE


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (b"X-Amz-Expires=60", b"", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"X-Amz-Expires=60", b"X-Amz-Expires=0", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"X-Amz-Expires=60", b"X-Amz-Expires=604801", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"X-Amz-Expires=60", b"X-Amz-Expires=99999999999999999999", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"X-Amz-Expires=60", b"X-Amz-Expires=61", ErrorKind.SIGNATURE_DOES_NOT_MATCH),
        (b"X-Amz-Algorithm=", b"X-Amz-Algo=", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"X-Amz-Credential=", b"X-Amz-Cred=", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"X-Amz-Date=", b"X-Amz-Day=", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"X-Amz-Signature=", b"X-Amz-Sig=", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"X-Amz-Signature=", b"X-Amz-Signature=1&X-Amz-Signature=", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"X-Amz-SignedHeaders=host", b"X-Amz-SignedHeaders=date", ErrorKind.INCOMPLETE_SIGNATURE),
        (b"Action=ListQueues", b"Action=PurgeQueue", ErrorKind.SIGNATURE_DOES_NOT_MATCH),
    ],
)
def test_a_changed_presigned_request(old: bytes, new: bytes, kind: ErrorKind) -> None:
    request = signed("GET", "http://h/?Action=ListQueues", body=b"", expires_s=60)
    assert old in request.query_string
    assert refusal(replace(request, query_string=request.query_string.replace(old, new))) is kind


def test_the_vanilla_request_of_aws_itself() -> None:
    """The published example of the derived key: AWS's documentation of Signature Version 4."""
    key = aws_signing_key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "20150830", "us-east-1", "iam")
    assert key.hex() == "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9"


def test_derived_keys_are_kept_but_not_without_bound() -> None:
    for number in range(1100):
        refusal(signed(region=f"r-{number}", secret="x" * 20))
    kept = aws_signing_key.cache_info()
    assert kept.maxsize == 1024
    assert kept.currsize == 1024


request_parts = st.builds(
    SignedRequest,
    st.sampled_from(["GET", "POST"]),
    st.binary(max_size=20),
    st.one_of(
        st.binary(max_size=40), st.binary(max_size=9).map(lambda junk: b"X-Amz-Algorithm=AWS4-HMAC-SHA256&" + junk)
    ),
    st.lists(
        st.tuples(
            st.sampled_from([b"authorization", b"host", b"date", b"x-amz-date", b"X-Amz-Target", b"\xff"]),
            st.one_of(
                st.binary(max_size=40),
                st.just(b"20260203T040506Z"),
                st.binary(max_size=20).map(
                    lambda junk: (
                        b"AWS4-HMAC-SHA256 Credential=ALICE/20260203/" + junk + b"/sqs/aws4_request,SignedHeaders=host"
                        b",Signature=" + junk
                    )
                ),
            ),
        ),
        max_size=5,
    ),
    st.binary(max_size=10),
)


@given(request_parts)
def test_nothing_but_a_refusal_comes_of_junk(request: SignedRequest) -> None:
    refusal(request)
