"""Signatures after the Standard Webhooks specification."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.errors import InvalidArgument
from penstock.domain.signing import Signature, key_of, sign, verify

# The specification's published example.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
TIMESTAMP_S = 1_614_265_330
BODY = b'{"test": 2432232314}'
EXPECTED = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

OTHER_SECRET = "whsec_b2xkIHNlY3JldCBvZiBhIHN1YnNjcmliZXI="
NOW_MS = TIMESTAMP_S * 1000


def test_the_published_example_has_its_published_signature() -> None:
    assert sign([SECRET], MESSAGE_ID, TIMESTAMP_S, BODY) == Signature(MESSAGE_ID, str(TIMESTAMP_S), EXPECTED)
    assert verify(Signature(MESSAGE_ID, str(TIMESTAMP_S), EXPECTED), BODY, [SECRET], NOW_MS)


def test_several_secrets_make_several_signatures_in_their_order() -> None:
    signatures = sign([OTHER_SECRET, SECRET], MESSAGE_ID, TIMESTAMP_S, BODY).signatures.split(" ")
    assert signatures[1] == EXPECTED
    assert len(signatures) == 2


def test_a_receiver_with_either_secret_accepts_during_a_change() -> None:
    signature = sign([OTHER_SECRET, SECRET], MESSAGE_ID, TIMESTAMP_S, BODY)
    assert verify(signature, BODY, [SECRET], NOW_MS)
    assert verify(signature, BODY, [OTHER_SECRET], NOW_MS)
    assert verify(sign([SECRET], MESSAGE_ID, TIMESTAMP_S, BODY), BODY, [OTHER_SECRET, SECRET], NOW_MS)


@pytest.mark.parametrize(("skew_s", "genuine"), [(0, True), (300, True), (-300, True), (301, False), (-301, False)])
def test_five_minutes_early_or_late_is_accepted(skew_s: int, genuine: bool) -> None:
    signature = sign([SECRET], MESSAGE_ID, TIMESTAMP_S, BODY)
    assert verify(signature, BODY, [SECRET], NOW_MS + skew_s * 1000) is genuine


@pytest.mark.parametrize(
    ("message_id", "timestamp", "signatures", "body"),
    [
        ("another", str(TIMESTAMP_S), EXPECTED, BODY),
        (MESSAGE_ID, str(TIMESTAMP_S + 1), EXPECTED, BODY),
        (MESSAGE_ID, str(TIMESTAMP_S), EXPECTED, BODY + b" "),
        (MESSAGE_ID, str(TIMESTAMP_S), EXPECTED.removeprefix("v1,"), BODY),
        (MESSAGE_ID, str(TIMESTAMP_S), EXPECTED.replace("v1,", "v2,"), BODY),
        (MESSAGE_ID, str(TIMESTAMP_S), EXPECTED.lower(), BODY),
        (MESSAGE_ID, str(TIMESTAMP_S), "", BODY),
        (MESSAGE_ID, str(TIMESTAMP_S), "v1,\udcffé", BODY),
        (MESSAGE_ID, "", EXPECTED, BODY),
        (MESSAGE_ID, "soon", EXPECTED, BODY),
        (MESSAGE_ID, "9" * 5000, EXPECTED, BODY),
        (MESSAGE_ID, f"{TIMESTAMP_S}.0", EXPECTED, BODY),
    ],
)
def test_whatever_was_not_signed_is_not_accepted(message_id: str, timestamp: str, signatures: str, body: bytes) -> None:
    assert not verify(Signature(message_id, timestamp, signatures), body, [SECRET], NOW_MS)


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_not base64", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_a", "whsec_é"]
)
def test_a_secret_that_is_none_is_refused_without_being_shown(secret: str) -> None:
    with pytest.raises(InvalidArgument, match="signing secret") as raised:
        key_of(secret)
    assert not secret.removeprefix("whsec_") or secret not in str(raised.value)


@pytest.mark.parametrize("message_id", ["", "a b", "a\r\nb", "a.b", "é", "a\x7f"])
def test_an_id_that_a_header_cannot_carry_is_refused(message_id: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot be signed"):
        sign([SECRET], message_id, TIMESTAMP_S, BODY)


@given(body=st.binary(), message_id=st.text("abcXYZ019_-:/", min_size=1), change=st.integers(0, 10_000))
def test_what_is_signed_verifies_and_any_changed_byte_does_not(body: bytes, message_id: str, change: int) -> None:
    signature = sign([SECRET], message_id, TIMESTAMP_S, body)
    assert verify(signature, body, [SECRET], NOW_MS)
    if body:
        at = change % len(body)
        assert not verify(signature, body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :], [SECRET], NOW_MS)
