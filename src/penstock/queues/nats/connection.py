"""A connection to NATS that reconnects by itself, with one inbox whose messages are handled in order."""

import asyncio
from collections.abc import Callable
from itertools import count

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError
from nats.js.manager import JetStreamManager

from penstock.domain.errors import PenstockError
from penstock.domain.limits import SECOND_MS
from penstock.queues.errors import BrokerQueueNotFound, BrokerUnavailable
from penstock.queues.uri import NatsUri

CONNECT_S = 5
ANSWER_S = 5.0
_RECONNECT_PAUSE_S = 0.25


def _ignore(_: object) -> None:
    pass


class NatsConnection:
    """Sends requests and messages, and reports when the connection is lost and when it is back."""

    def __init__(
        self,
        uri: NatsUri,
        *,
        on_delivery: Callable[[Msg], None] = _ignore,
        on_lost: Callable[[PenstockError], None] = _ignore,
        on_back: Callable[[], None] = lambda: None,
    ) -> None:
        self._uri = uri
        self._on_delivery = on_delivery
        self._on_lost = on_lost
        self._on_back = on_back
        self._client = Client()
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._tokens = count(1)
        self._requests: dict[str, asyncio.Future[Msg]] = {}

    @property
    def is_connected(self) -> bool:
        """Whether the server is connected now."""
        return self._client.is_connected

    @property
    def max_payload_bytes(self) -> int:
        """The longest message, headers included, that the server accepts."""
        return self._client.max_payload

    @property
    def streams(self) -> JetStreamManager:
        """JetStream's administration."""
        return self._client.jsm(timeout=ANSWER_S)

    async def open(self) -> None:
        """Connect; raise BrokerUnavailable if there is no server."""
        try:
            await self._connect()
        except (OSError, NatsError, TimeoutError) as error:
            await self._client.close()
            raise BrokerUnavailable(f"cannot connect to {self._uri.shown}: {_text(error)}") from error
        # Set only now, so that a failure of the first connection is reported immediately.
        self._client.options.update(allow_reconnect=True, max_reconnect_attempts=-1)
        self._inbox = self._client.new_inbox()
        self._subscription = await self._client.subscribe(f"{self._inbox}.>", cb=self._handle)

    async def stream_subjects(self, template: NatsUri | None = None) -> list[str]:
        """Return the subjects of the stream; raise BrokerQueueNotFound if there is no such stream.

        With a template, a missing stream is created like that one, with its own name as the subject.
        """
        stream = self._uri.stream
        try:
            try:
                info = await self.streams.stream_info(stream)
            except NotFoundError:
                if template is None:
                    raise
                like = (await self.streams.stream_info(template.stream)).config
                wanted = like.evolve(name=stream, subjects=[stream], mirror=None, sources=None, republish=None)
                info = await self.streams.add_stream(wanted)
        except NotFoundError as error:
            raise BrokerQueueNotFound(
                f"NATS has no stream {stream!r} ({self._uri.shown}); create it, for example with"
                f" `nats stream add {stream} --subjects {stream} --dupe-window 5m`"
            ) from error
        except (NatsError, TimeoutError) as error:
            raise self.unavailable(error) from error
        return info.config.subjects or [stream]

    async def oldest_sent_ms(self) -> int | None:
        """Return when the oldest message was published that the consumer has not settled; None if there is none."""
        uri = self._uri
        try:
            try:
                floor = (await self.streams.consumer_info(uri.stream, uri.consumer)).ack_floor
            except NotFoundError:
                floor = None
            first_seq = (floor.stream_seq if floor else 0) + 1
            message = await self.streams.get_msg(uri.stream, first_seq, subject=">", next=True)
        except NotFoundError:
            return None
        except (NatsError, TimeoutError) as error:
            raise self.unavailable(error) from error
        assert message.time is not None
        return int(message.time.timestamp() * SECOND_MS)

    async def delete_stream_if_empty(self) -> bool:
        """Delete the stream if its consumer has settled all its messages; return whether it is gone."""
        uri = self._uri
        try:
            consumer = await self.streams.consumer_info(uri.stream, uri.consumer)
            if consumer.num_pending or consumer.num_ack_pending:
                return False
            return await self.streams.delete_stream(uri.stream)
        except NotFoundError:
            return True
        except (NatsError, TimeoutError) as error:
            raise self.unavailable(error) from error

    async def request(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> "asyncio.Future[Msg]":
        """Send a message, and return the future of its answer; raise BrokerUnavailable if not connected."""
        if not self.is_connected:
            raise self.unavailable("not connected")
        token = str(next(self._tokens))
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda _: self._requests.pop(token, None))
        self._requests[token] = answer
        await self.send(subject, payload, f"{self._inbox}.{token}", headers)
        return answer

    async def send(self, subject: str, payload: bytes, reply: str = "", headers: dict[str, str] | None = None) -> None:
        """Send a message, without confirmation."""
        try:
            await self._client.publish(subject, payload, reply, headers)
        except (OSError, NatsError) as error:
            raise self.unavailable(error) from error

    async def flush(self) -> None:
        """Wait until the server has received everything sent."""
        try:
            await self._client.flush(CONNECT_S)
        except (OSError, NatsError, TimeoutError) as error:
            raise self.unavailable(error) from error

    async def stop_deliveries(self) -> None:
        """Stop deliveries, and handle those already sent."""
        if self._subscription is not None and self.is_connected:
            try:
                await self._subscription.drain()  # type: ignore[no-untyped-call]
            except (OSError, NatsError, TimeoutError) as error:
                raise self.unavailable(error) from error

    async def close(self) -> None:
        """Disconnect."""
        self._on_lost, self._on_back = _ignore, lambda: None
        await self._client.close()
        self._fail_all(self.unavailable("closed"))

    def unavailable(self, reason: object) -> BrokerUnavailable:
        """Return the error for a server that did not answer."""
        return BrokerUnavailable(f"NATS did not answer ({self._uri.shown}): {_text(reason)}")

    async def _connect(self) -> None:
        login = self._uri.login
        await self._client.connect(
            f"nats://{self._uri.host}:{self._uri.port}",
            name="penstock",
            allow_reconnect=False,
            max_reconnect_attempts=1,
            connect_timeout=CONNECT_S,
            reconnect_time_wait=_RECONNECT_PAUSE_S,  # type: ignore[arg-type]
            error_cb=_ignore_error,
            disconnected_cb=self._lost,
            reconnected_cb=self._back,
            user=login.user if login and login.password else None,
            password=login.password if login and login.password else None,
            token=login.user if login and not login.password else None,
        )

    async def _handle(self, message: Msg) -> None:
        if message.subject.startswith(self._inbox):
            answer = self._requests.get(message.subject[len(self._inbox) + 1 :])
            if answer is not None and not answer.done():
                answer.set_result(message)
        else:
            self._on_delivery(message)

    async def _lost(self) -> None:
        reason = self.unavailable("the connection was lost")
        self._on_lost(reason)
        self._fail_all(reason)

    async def _back(self) -> None:
        self._on_back()

    def _fail_all(self, reason: PenstockError) -> None:
        for answer in list(self._requests.values()):
            if not answer.done():
                answer.set_exception(reason)
                answer.exception()


def _text(reason: object) -> str:
    return str(reason) or type(reason).__name__


async def _ignore_error(_error: Exception) -> None:
    """Do nothing: a failure is reported by the call that failed, or as a lost connection."""
