"""HTTP/1.1 to one server over connections that are kept: only what an SQS client needs.

Whose key signs the requests to SQS: from AWS's environment variables, else from the shared credentials file.

The bytes of a request to SQS: AWS JSON 1.0 in a POST, signed by Signature Version 4 if there is a key.

Always the same few headers, so their canonical form is written down instead of worked out.
"""

import asyncio
import configparser
import hmac
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, cast

import httptools

from penstock.domain.aws_signature import ALGORITHM, credential_scope, signing_key, string_to_sign
from penstock.edge.outbox import Outbox
from penstock.queues.errors import BrokerUnavailable, SourceClosed

# How much later than its time a request may be given up, as a part of that time and at most.
_TICKS_PER_TIMEOUT = 10
_LONGEST_TICK_S = 1.0


class Answer(NamedTuple):
    """An answer, whole."""

    status: int
    body: bytes


class HttpPool:
    """Sends requests to one server, each over a connection that is free or a new one."""

    def __init__(self, host: str, port: int, *, secure: bool, timeout_s: float) -> None:
        self._host = host
        self._port = port
        self._secure = secure
        self._timeout_s = timeout_s
        self._outbox = Outbox()
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    async def exchange(self, request: bytes, *, outlives_cancel: bool = False) -> Answer:
        """The answer to a request; BrokerUnavailable if none comes in time.

        A kept connection that breaks before the answer begins was most likely given up by the server in the meantime:
        then the request is sent once more, over a new one.

        `outlives_cancel`: an answer that comes in the moment of a cancel is given all the same. Only for a task of its
        own, of which nobody expects to be cancelled: the cancel is lost.
        """
        ends_s = asyncio.get_running_loop().time() + self._timeout_s
        try:
            kept = self._kept()
            if kept is not None:
                try:
                    return await self._exchange(kept, request, ends_s, outlives_cancel)
                except _Broken as broken:
                    if broken.answering:
                        raise
            async with asyncio.timeout_at(ends_s):
                fresh = await self._connect()
            return await self._exchange(fresh, request, ends_s, outlives_cancel)
        except TimeoutError:
            raise self._unavailable(f"no answer within {self._timeout_s:g} s") from None
        except (OSError, httptools.HttpParserError) as error:
            raise self._unavailable(getattr(error, "strerror", None) or str(error) or type(error).__name__) from error

    def close(self) -> None:
        """Hang up the connections that are free; the others when their answers are there."""
        self._closed = True
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _kept(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        return None

    async def _connect(self) -> "_Connection":
        if self._closed:
            raise SourceClosed(f"{self._host}:{self._port}")
        if self._secure and self._tls is None:
            self._tls = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or None)
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: _Connection(self._outbox), self._host, self._port, ssl=self._tls
        )
        return connection

    async def _exchange(
        self, connection: "_Connection", request: bytes, ends_s: float, outlives_cancel: bool
    ) -> Answer:
        answer = connection.send(request, ends_s)
        self._busy.add(connection)
        if self._sweep is None:
            self._sweep_later()
        try:
            result = await answer
        except asyncio.CancelledError:
            if not outlives_cancel or not answer.done() or answer.cancelled():
                connection.close()
                raise
            # Messages in it are leased to us, so somebody must see it.
            result = answer.result()
        finally:
            self._busy.discard(connection)
        if connection.open and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()
        return result

    def _sweep_later(self) -> None:
        """One timer for all requests: one each would cost more than the rest of the request."""
        tick_s = min(self._timeout_s / _TICKS_PER_TIMEOUT, _LONGEST_TICK_S)
        self._sweep = asyncio.get_running_loop().call_later(tick_s, self._give_up_overdue)

    def _give_up_overdue(self) -> None:
        self._sweep = None
        now_s = asyncio.get_running_loop().time()
        for connection in self._busy:
            connection.expire(now_s)
        if self._busy:
            self._sweep_later()

    def _unavailable(self, reason: str) -> BrokerUnavailable:
        return BrokerUnavailable(f"cannot talk to {self._host}:{self._port}: {reason}; check that the server is up")


class _Broken(ConnectionError):
    """The connection ended without an answer."""

    def __init__(self, *, answering: bool) -> None:
        super().__init__("the server hung up")
        self.answering = answering


class _Connection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._ends_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Answer] | None = None
        self._parts: list[bytes] = []
        self._answering = False
        self.open = False

    def send(self, request: bytes, ends_s: float) -> "asyncio.Future[Answer]":
        """Send a request; its answer comes, or a TimeoutError soon after `ends_s`."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._ends_s = ends_s
        self._outbox.write(self._transport, request)
        return self._answer

    def expire(self, now_s: float) -> None:
        """Give up a request that is past its time."""
        if now_s >= self._ends_s:
            self._end(TimeoutError())
            self.close()

    def close(self) -> None:
        """Hang up."""
        self.open = False
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        # uvloop's transports have the interface but not the base class.
        self._transport = cast("asyncio.Transport", transport)
        self.open = True

    def data_received(self, data: bytes) -> None:
        """A part of an answer."""
        if self._answer is None:
            self.close()  # nobody asked: what follows could be taken for another's answer
            return
        self._answering = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The server, or we, hung up."""
        self.open = False
        self._end(_Broken(answering=self._answering))

    def on_body(self, body: bytes) -> None:
        """A part of an answer's body."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """An answer is whole."""
        parser, parts = self._parser, self._parts
        answer = Answer(parser.get_status_code(), parts[0] if len(parts) == 1 else b"".join(parts))
        self.open = self.open and parser.should_keep_alive()
        self._parts = []
        self._answering = False
        self._end(answer)

    def _end(self, outcome: Answer | Exception) -> None:
        waiting, self._answer = self._answer, None
        if waiting is None or waiting.done():
            return
        if isinstance(outcome, Exception):
            waiting.set_exception(outcome)
        else:
            waiting.set_result(outcome)


DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class AwsKey:
    """An access key; what is secret of it is not shown."""

    access_key: str
    secret: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def find_key(environment: Mapping[str, str] = os.environ) -> AwsKey | None:
    """The key to sign with; None if there is none, as with a server on this machine that checks nobody."""
    access_key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if access_key and secret:
        return AwsKey(access_key, secret, environment.get("AWS_SESSION_TOKEN") or None)
    return _from_file(environment)


def find_region(told_by_url: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The region to sign for: the queue URL's, else the environment's."""
    return told_by_url or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or DEFAULT_REGION


def _from_file(environment: Mapping[str, str]) -> AwsKey | None:
    path = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials").expanduser()
    # A secret may hold a percent sign.
    file = configparser.ConfigParser(interpolation=None)
    try:
        file.read_string(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return None
    profile = environment.get("AWS_PROFILE") or "default"
    if not file.has_section(profile):
        return None
    section = file[profile]
    access_key, secret = section.get("aws_access_key_id"), section.get("aws_secret_access_key")
    return AwsKey(access_key, secret, section.get("aws_session_token")) if access_key and secret else None


_SERVICE = "sqs"
_CONTENT_TYPE = "application/x-amz-json-1.0"


class RequestWriter:
    """Writes requests to one host."""

    def __init__(self, host_header: str, region: str, key: AwsKey | None) -> None:
        self._host = host_header
        self._region = region
        self._key = key

    def write(self, action: str, body: bytes, now_ms: int) -> bytes:
        """A request for an action."""
        head = (
            f"POST / HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: {_CONTENT_TYPE}\r\n"
            f"X-Amz-Target: AmazonSQS.{action}\r\nContent-Length: {len(body)}\r\n"
        )
        if self._key is not None:
            head += self._signature(self._key, action, body, now_ms)
        return f"{head}\r\n".encode() + body

    def _signature(self, key: AwsKey, action: str, body: bytes, now_ms: int) -> str:
        stamp = datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        names = "content-type;host;x-amz-date;x-amz-target"
        headers = f"content-type:{_CONTENT_TYPE}\nhost:{self._host}\nx-amz-date:{stamp}\n"
        token = ""
        if key.session_token is not None:
            names = "content-type;host;x-amz-date;x-amz-security-token;x-amz-target"
            headers += f"x-amz-security-token:{key.session_token}\n"
            token = f"X-Amz-Security-Token: {key.session_token}\r\n"
        headers += f"x-amz-target:AmazonSQS.{action}\n"
        canonical = f"POST\n/\n\n{headers}\n{names}\n{sha256(body).hexdigest()}".encode()
        scope = credential_scope(stamp[:8], self._region, _SERVICE)
        text = string_to_sign(stamp, scope, canonical)
        signature = hmac.digest(signing_key(key.secret, stamp[:8], self._region, _SERVICE), text.encode(), "sha256")
        return (
            f"X-Amz-Date: {stamp}\r\n{token}Authorization: {ALGORITHM} Credential={key.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature.hex()}\r\n"
        )
