"""A small HTTP/2 endpoint for tests, on the h2 package: a function answers each request as it likes."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset
from h2.settings import SettingCodes, Settings

from tests.rigs.http_endpoints import Talk


class Request(msgspec.Struct, eq=False):
    """A request that came in whole."""

    session: "Session"
    stream_id: int
    headers: dict[str, str]
    body: bytes

    @property
    def message_id(self) -> str:
        """The message it delivers."""
        return str(msgspec.json.decode(self.body)["messageId"])

    async def answer(self, status: int, body: bytes = b"{}", *headers: tuple[str, str]) -> None:
        """Answer it, as fast as the client's windows allow, until it has enough."""
        session, h2 = self.session, self.session.h2
        h2.send_headers(self.stream_id, [(":status", str(status)), *headers])
        while self.stream_id not in session.resets:
            room = min(h2.local_flow_control_window(self.stream_id), h2.max_outbound_frame_size)
            piece, body = body[:room], body[room:]
            if piece or not body:
                h2.send_data(self.stream_id, piece, end_stream=not body)
            await session.flush()
            if not body:
                return
            await asyncio.sleep(0)


Handler = Callable[[Request], Awaitable[None]]


class Session:
    """One connection of a client."""

    def __init__(self, writer: asyncio.StreamWriter, settings: dict[SettingCodes, int]) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.writer = writer
        self.resets: list[int] = []
        self._requests: dict[int, Request] = {}
        self.h2.local_settings = Settings(client=False, initial_values=settings)

    async def talk(self, reader: asyncio.StreamReader, handler: Handler) -> None:
        """Read requests until the client goes away; they are handled as they come, all at once."""
        self.h2.initiate_connection()
        await self.flush()
        async with asyncio.TaskGroup() as handlers:
            while data := await reader.read(65_536):
                for request in self._take(data):
                    handlers.create_task(_handled(handler, request))
                await self.flush()

    def _take(self, data: bytes) -> list[Request]:
        whole = []
        for event in self.h2.receive_data(data):
            match event:
                case RequestReceived(stream_id=stream_id, headers=headers):
                    named = {str(name): str(value) for name, value in headers}
                    self._requests[stream_id] = Request(self, stream_id, named, b"")
                case DataReceived(stream_id=stream_id):
                    self._requests[stream_id].body += event.data
                    self.h2.acknowledge_received_data(event.flow_controlled_length, stream_id)
                case StreamEnded(stream_id=stream_id):
                    whole.append(self._requests.pop(stream_id))
                case StreamReset(stream_id=stream_id):
                    self.resets.append(stream_id)
        return whole

    async def flush(self) -> None:
        """Send what there is to send."""
        self.writer.write(self.h2.data_to_send())
        await self.writer.drain()


async def _handled(handler: Handler, request: Request) -> None:
    with suppress(ConnectionError):
        await handler(request)


def http2(handler: Handler, sessions: list[Session] | None = None, **settings: int) -> Talk:
    """How to talk HTTP/2 on a connection of a RawServer."""
    chosen = {SettingCodes[name.upper()]: value for name, value in settings.items()}

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = Session(writer, chosen)
        if sessions is not None:
            sessions.append(session)
        await session.talk(reader, handler)

    return talk
