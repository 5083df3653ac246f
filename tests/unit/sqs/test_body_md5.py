"""The digest of a body, long or short, is the one that clients make."""

import hashlib

import pytest

from penstock.sqs.actions.message_attributes import body_md5


@pytest.mark.parametrize("length", [1, 63, 64, 2047, 2048, 100_000])
def test_the_digest_is_md5(length: int) -> None:
    body = (b"\x00\xff text" * length)[:length]
    assert body_md5(body) == hashlib.md5(body, usedforsecurity=False).hexdigest()
