"""Signatures after the Standard Webhooks specification."""

from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.errors import InvalidArgument
from penstock.domain.signing import (
    Signature,
    SigningMethod,
    check_verifier,
    key_of,
    method_of,
    secret_of,
    sign,
    verifier_of,
    verify,
)

# The specification's published example.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
TIMESTAMP_S = 1_614_265_330
BODY = b'{"test": 2432232314}'
EXPECTED = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

OTHER_SECRET = "whsec_b2xkIHNlY3JldCBvZiBhIHN1YnNjcmliZXI="
NOW_MS = TIMESTAMP_S * 1000


@pytest.mark.parametrize(("method", "prefix"), [(SigningMethod.HMAC, "whsec_"), (SigningMethod.ED25519, "whsk_")])
def test_a_secret_says_how_it_signs_and_has_its_key(method: SigningMethod, prefix: str) -> None:
    secret = secret_of(method, bytes(range(32)))
    assert method_of(secret) is method
    assert b64decode(secret.removeprefix(prefix)) == bytes(range(32))


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


# RFC 8032, test 2: the private key, its public key.
PRIVATE = (
    "whsk_" + b64encode(bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")).decode()
)
PUBLIC = "whpk_" + b64encode(bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")).decode()


class TestEd25519:
    def test_the_public_key_of_a_published_private_one_verifies(self) -> None:
        signature = sign([PRIVATE], MESSAGE_ID, TIMESTAMP_S, BODY)
        assert signature.signatures.startswith("v1a,")
        assert verifier_of(PRIVATE) == PUBLIC
        assert verify(signature, BODY, [PUBLIC], NOW_MS)
        assert not verify(signature, BODY + b" ", [PUBLIC], NOW_MS)
        assert not verify(signature, BODY, [SECRET], NOW_MS)

    def test_a_private_key_may_have_its_public_one_behind_it(self) -> None:
        whole = b64decode(PRIVATE.removeprefix("whsk_")) + b64decode(PUBLIC.removeprefix("whpk_"))
        assert verifier_of("whsk_" + b64encode(whole).decode()) == PUBLIC

    def test_both_methods_sign_while_one_replaces_the_other(self) -> None:
        signature = sign([PRIVATE, SECRET], MESSAGE_ID, TIMESTAMP_S, BODY)
        assert [each.partition(",")[0] for each in signature.signatures.split(" ")] == ["v1a", "v1"]
        assert verify(signature, BODY, [PUBLIC], NOW_MS)
        assert verify(signature, BODY, [SECRET], NOW_MS)

    @pytest.mark.parametrize("signatures", ["v1a,", "v1a,!", "v1a," + "A" * 86 + "==", EXPECTED, "v1a,\udcffé"])
    def test_another_signature_is_not_accepted(self, signatures: str) -> None:
        assert not verify(Signature(MESSAGE_ID, str(TIMESTAMP_S), signatures), BODY, [PUBLIC], NOW_MS)

    @pytest.mark.parametrize("text", ["whsk_", "whsk_AAAA", "whsk_!", PUBLIC, "", "whsec_!"])
    def test_what_cannot_sign_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidArgument, match="malformed"):
            method_of(text)

    def test_a_malformed_key_is_not_in_the_message(self) -> None:
        with pytest.raises(InvalidArgument) as refused:
            method_of(PRIVATE + "AAAA")
        assert "AAAA" not in refused.value.message

    @pytest.mark.parametrize("text", ["whpk_", "whpk_AAAA", PRIVATE, ""])
    def test_what_cannot_verify_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidArgument):
            check_verifier(text)
