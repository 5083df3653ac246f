"""Requests to SQS: signed as AWS wants it, with a key from where AWS's tools look for one."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials as BotoCredentials  # type: ignore[import-untyped]

from penstock.delivery.http.request import parse_target
from penstock.queues.sqs.request import AwsKey, RequestWriter, find_key, find_region
from penstock.sqs.auth.credentials import AccessKey, Credentials, KeyRole, Principal
from penstock.sqs.auth.sigv4 import verify
from penstock.sqs.errors import SqsError
from penstock.sqs.wire.protocol import SignedRequest

NOW_MS = 1_790_000_000_000
SECRET = "a secret of many characters"
KEY = AwsKey("the-key", SECRET)


def parsed(raw: bytes) -> SignedRequest:
    """A request as a server reads it."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    method, path, _ = first.split(b" ")
    headers = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
    return SignedRequest(method.decode(), path, b"", headers, body)


def headers_of(raw: bytes) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in parsed(raw).headers}


def written(key: AwsKey | None, *, region: str = "eu-west-1", body: bytes = b'{"a":1}') -> bytes:
    target = parse_target("https://sqs.example:8443/")
    return RequestWriter(target, region, key).head("SendMessageBatch", body, NOW_MS).http1(body, None)


def test_a_request_without_a_key_is_not_signed() -> None:
    assert headers_of(written(None)) == {
        "Host": "sqs.example:8443",
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": "AmazonSQS.SendMessageBatch",
        "Content-Length": "7",
    }


@pytest.mark.parametrize("token", [None, "a session token"])
def test_a_signature_is_the_one_that_botocore_makes(token: str | None) -> None:
    ours = headers_of(written(AwsKey("the-key", SECRET, token)))

    signed = {name: ours[name] for name in ("Host", "Content-Type", "X-Amz-Target")}
    request = AWSRequest("POST", "https://sqs.example:8443/", signed, data=b'{"a":1}')
    request.context["timestamp"] = ours["X-Amz-Date"]
    auth = SigV4Auth(BotoCredentials("the-key", SECRET, token), "sqs", "eu-west-1")
    if token:
        request.headers["X-Amz-Security-Token"] = token
    request.headers["X-Amz-Date"] = ours["X-Amz-Date"]
    canonical = auth.canonical_request(request)
    theirs = auth.signature(auth.string_to_sign(request, canonical), request)

    assert urlsplit(request.url).path == "/"
    assert ours["Authorization"].endswith(f"Signature={theirs}")
    assert ours.get("X-Amz-Security-Token") == token


def test_our_own_server_takes_the_signature_and_refuses_a_changed_body() -> None:
    credentials = Credentials.of([AccessKey(Principal("the-key", KeyRole.CLIENT), SECRET)])
    raw = written(KEY)

    assert verify(parsed(raw), credentials, NOW_MS) == (Principal("the-key", KeyRole.CLIENT), "eu-west-1")
    with pytest.raises(SqsError, match="signature does not match"):
        verify(parsed(raw.replace(b'"a":1', b'"a":2')), credentials, NOW_MS)


def test_a_secret_is_not_shown() -> None:
    assert SECRET not in repr(AwsKey("the-key", SECRET, SECRET)) + written(KEY).decode()


def test_the_environment_s_key_goes_first(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = of-the-file\naws_secret_access_key = x\n")
    environment = {
        "AWS_ACCESS_KEY_ID": "of-the-environment",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_SESSION_TOKEN": "t",
        "AWS_SHARED_CREDENTIALS_FILE": str(file),
    }
    assert find_key(environment) == AwsKey("of-the-environment", "s", "t")


def test_a_profile_of_the_shared_file_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text(
        "[default]\naws_access_key_id = a\naws_secret_access_key = 100%(b\n"
        "[other]\naws_access_key_id = c\naws_secret_access_key = d\naws_session_token = e\n"
        "[empty]\n"
    )
    place = {"AWS_SHARED_CREDENTIALS_FILE": str(file)}
    assert find_key(place) == AwsKey("a", "100%(b")
    assert find_key({**place, "AWS_PROFILE": "other"}) == AwsKey("c", "d", "e")
    assert find_key({**place, "AWS_PROFILE": "empty"}) is None
    assert find_key({**place, "AWS_PROFILE": "missing"}) is None


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"no section"])
def test_without_a_readable_file_there_is_no_key(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "credentials"
    if content is not None:
        file.write_bytes(content)
    assert find_key({"AWS_SHARED_CREDENTIALS_FILE": str(file)}) is None


def test_the_region_is_the_url_s_else_the_environment_s() -> None:
    environment = {"AWS_REGION": "b", "AWS_DEFAULT_REGION": "c"}
    assert find_region("a", environment) == "a"
    assert find_region(None, environment) == "b"
    assert find_region(None, {"AWS_DEFAULT_REGION": "c"}) == "c"
    assert find_region(None, {}) == "us-east-1"
