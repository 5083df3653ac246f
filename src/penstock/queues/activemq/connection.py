"""A STOMP 1.2 connection: sends frames, receives receipts and messages, and exchanges heart-beats."""

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import cast

import msgspec

from penstock.domain.errors import PenstockError
from penstock.queues.activemq.stomp import HEART_BEAT, Frame, FrameParser, encoded
from penstock.queues.errors import BrokerRefused, BrokerUnavailable, MalformedFrame

CONNECT_S = 10.0
ANSWER_S = 30.0
CLOSE_S = 5.0
HEART_BEAT_MS = 10_000
# What the broker is promised; a heart-beat is sent twice as often. A process that sleeps longer than half of it may
# have lost its messages to others.
PROMISED_HEART_BEAT_MS = 20_000
LEASE_S = PROMISED_HEART_BEAT_MS / 2 / 1000
_PULSE_S = 1.0
# Heart-beats may be late because of network delays.
TOLERATED_INTERVALS = 2.5


class StompAddress(msgspec.Struct, frozen=True):
    """The address of a broker, and the login."""

    host: str
    port: int
    login: str | None = None
    passcode: str | None = None

    def __repr__(self) -> str:
        return f"{self.host}:{self.port}"

    __str__ = __repr__


class StompConnection(asyncio.Protocol):
    """A connection that is usable after `connect`, until it is closed or lost."""

    def __init__(self, address: StompAddress, on_message: Callable[[Frame], None]) -> None:
        self._address = address
        self._on_message = on_message
        self._on_lost: Callable[[PenstockError], None] = _ignore
        self._parser = FrameParser()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._connected: asyncio.Future[Frame] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._receipt_ids = count(1)
        self._receipts: dict[str, asyncio.Future[None]] = {}
        self._writable = asyncio.Event()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._heard_s = self._loop.time()
        # When this process was last seen at work.
        self.awake_s = self._loop.time()
        self._reason: PenstockError | None = None

    @classmethod
    async def connect(
        cls, address: StompAddress, on_message: Callable[[Frame], None], on_lost: Callable[[PenstockError], None]
    ) -> "StompConnection":
        """Connect and log in; `on_lost` is called once if the connection ends by itself."""
        connection = cls(address, on_message)
        try:
            async with asyncio.timeout(CONNECT_S):
                await connection._open()
        except (OSError, TimeoutError) as error:
            connection.abort()
            raise BrokerUnavailable(
                f"cannot connect to the broker at {address}: {str(error) or 'timed out'}"
            ) from error
        except BaseException:
            connection.abort()
            raise
        connection.raise_if_lost()
        connection._on_lost = on_lost
        return connection

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended."""
        return self._reason is not None

    def raise_if_lost(self) -> None:
        """Raise the reason if the connection has ended."""
        if self._reason is not None:
            raise self._reason

    def send(self, command: str, headers: Mapping[str, str], body: bytes | None = None) -> None:
        """Write a frame, without confirmation."""
        if self._transport is not None and not self.is_lost:
            self._transport.write(encoded(command, headers, body))

    def request(self, command: str, headers: Mapping[str, str], body: bytes | None = None) -> "asyncio.Future[None]":
        """Write a frame that requests a receipt; the future ends when the broker has confirmed it."""
        receipt: asyncio.Future[None] = self._loop.create_future()
        if self._reason is not None:
            receipt.set_exception(self._reason)
            return receipt
        receipt_id = str(next(self._receipt_ids))
        self._receipts[receipt_id] = receipt
        self.send(command, {**headers, "receipt": receipt_id}, body)
        return receipt

    async def confirmed(self, receipt: "asyncio.Future[None]") -> None:
        """Wait for a receipt; treat the connection as lost if none comes in time."""
        try:
            async with asyncio.timeout(ANSWER_S):
                await receipt
        except TimeoutError:
            silent = BrokerUnavailable(f"the broker at {self._address} gave no receipt within {ANSWER_S:.0f} s")
            self._lose(silent)
            raise silent from None

    async def drain(self) -> None:
        """Wait until the write buffer has room."""
        await self._writable.wait()

    async def close(self) -> None:
        """Disconnect, after the broker has processed everything written before."""
        self._on_lost = _ignore
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.request("DISCONNECT", {})
        except (PenstockError, TimeoutError):
            pass
        finally:
            self.abort()
        await self._ended

    def abort(self) -> None:
        """Disconnect immediately, without a call of `on_lost`."""
        self._on_lost = _ignore
        self._lose(BrokerUnavailable(f"the connection to the broker at {self._address} was closed"))

    async def _open(self) -> None:
        address = self._address
        await self._loop.create_connection(lambda: self, address.host, address.port)
        headers = {
            "accept-version": "1.2",
            "host": address.host,
            "heart-beat": f"{PROMISED_HEART_BEAT_MS},{HEART_BEAT_MS}",
        }
        if address.login is not None:
            headers["login"] = address.login
        if address.passcode is not None:
            headers["passcode"] = address.passcode
        self.send("CONNECT", headers)
        self._start_heart_beats(await self._connected)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._loop.time()
        try:
            for frame in self._parser.feed(data):
                self._take(frame)
        except PenstockError as error:
            self._lose(error)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(BrokerUnavailable(f"the broker at {self._address} ended the connection: {exc or 'end of stream'}"))
        self._ended.set_result(None)

    def _take(self, frame: Frame) -> None:
        if self.is_lost:
            return
        if frame.command == "MESSAGE":
            self._on_message(frame)
        elif frame.command == "RECEIPT":
            _finish(self._receipts.pop(frame.headers.get("receipt-id", ""), None))
        elif frame.command == "CONNECTED":
            if not self._connected.done():
                self._connected.set_result(frame)
        elif frame.command == "ERROR":
            self._refused(frame)
        else:
            raise MalformedFrame(f"its command {frame.command[:40]!r} is unknown")

    def _refused(self, frame: Frame) -> None:
        reason = frame.headers.get("message", "no reason given")[:200]
        refusal = BrokerRefused(f"the broker at {self._address} refused: {reason}")
        receipt = self._receipts.pop(frame.headers.get("receipt-id", ""), None)
        if receipt is not None and not receipt.done():
            receipt.set_exception(refusal)
        if not self._connected.done():
            self._connected.set_exception(refusal)
        # The protocol ends the connection after an ERROR frame.
        self._lose(BrokerUnavailable(refusal.message))

    def _lose(self, reason: PenstockError) -> None:
        if self._reason is not None:
            return
        self._reason = reason
        for timer in self._timers.values():
            timer.cancel()
        self._writable.set()
        self._fail_waiting(reason)
        if self._transport is not None:
            self._transport.abort()
        else:
            self._ended.set_result(None)
        self._on_lost(reason)

    def _fail_waiting(self, reason: PenstockError) -> None:
        receipts, self._receipts = self._receipts, {}
        for receipt in receipts.values():
            if not receipt.done():
                receipt.set_exception(reason)
                receipt.exception()  # retrieved, as the caller may not await it
        if not self._connected.done():
            self._connected.set_exception(reason)
            self._connected.exception()

    def _start_heart_beats(self, connected: Frame) -> None:
        offered_ms, wanted_ms = _heart_beat(connected.headers.get("heart-beat", "0,0"))
        self.awake_s = self._loop.time()
        self._every(_PULSE_S, self._note_awake)
        if wanted_ms:
            self._every(max(PROMISED_HEART_BEAT_MS, wanted_ms) / 2 / 1000, self._send_heart_beat)
        if offered_ms:
            self._every(max(HEART_BEAT_MS, offered_ms) / 1000 * TOLERATED_INTERVALS, self._check_heart_beat)

    def _every(self, interval_s: float, action: Callable[[float], None]) -> None:
        def run() -> None:
            self._timers[action.__name__] = self._loop.call_later(interval_s, run)
            action(interval_s)

        self._timers[action.__name__] = self._loop.call_later(interval_s, run)

    def _send_heart_beat(self, _interval_s: float) -> None:
        if self._transport is not None:
            self._transport.write(HEART_BEAT)

    def _note_awake(self, _interval_s: float) -> None:
        now_s = self._loop.time()
        asleep_s, self.awake_s = now_s - self.awake_s, now_s
        if asleep_s > LEASE_S:
            self._lose(
                BrokerUnavailable(
                    f"this process did not run for {asleep_s:.0f} s, so that the broker at {self._address} may have "
                    "given its messages to others; they are received again"
                )
            )

    def _check_heart_beat(self, interval_s: float) -> None:
        silent_s = self._loop.time() - self._heard_s
        if silent_s > interval_s:
            self._lose(BrokerUnavailable(f"the broker at {self._address} has been silent for {silent_s:.0f} s"))


def _heart_beat(header: str) -> tuple[int, int]:
    offered, _, wanted = header.partition(",")
    try:
        return int(offered), int(wanted)
    except ValueError:
        raise BrokerUnavailable(f"the broker's heart-beat header {header[:40]!r} is not two numbers") from None


def _finish(receipt: "asyncio.Future[None] | None") -> None:
    if receipt is not None and not receipt.done():
        receipt.set_result(None)


def _ignore(_reason: PenstockError) -> None:
    pass
