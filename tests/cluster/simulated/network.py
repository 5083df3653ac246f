"""The network between clients and nodes, and between nodes: requests and answers take time, and some are lost."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from penstock.delivery import Answer, AnswerTimedOut, ConnectFailed, ConnectionBroken, RequestHead
from penstock.http.server import Headers
from penstock.sqs.app import SqsApp
from penstock.sqs.nodes.owners import HOP_S
from penstock.testing.simulation.chance import Chance
from penstock.testing.virtual_loop import VirtualProcess

_LOST = 0.01


class Listener:
    """A node's server, as the network knows it."""

    def __init__(self, process: VirtualProcess) -> None:
        self.process = process
        self.app: SqsApp | None = None
        """None while it does not listen."""
        self.dead = False
        self.refusing = False
        self.stalled = False
        """Whether other nodes do not reach it, or nothing that they send arrives."""

    @property
    def has_crashed(self) -> bool:
        """Whether it has."""
        return self.dead


class SimulatedExchange:
    """A request at a server, and its answer."""

    peer = "127.0.0.1"
    secure = False
    is_too_long = False

    def __init__(self, method: str, target: bytes, headers: Headers, body: bytes, server: Listener) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._server = server
        self._gone = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Send the answer."""
        if not self.answer.done():
            self.answer.set_result(Answer(status, None, body))

    def run_in_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Work on the answer in a task."""
        task = self._server.process.run(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def hung_up(self) -> None:
        """Return when the client has gone."""
        await self._gone.wait()

    def hang_up(self) -> None:
        """Leave, as the client."""
        self._gone.set()


class SimulatedNetwork:
    """All servers by address."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self.servers: dict[str, Listener] = {}

    async def ask(
        self, address: str, method: str, target: bytes, headers: Headers, body: bytes, *, between: bool
    ) -> Answer:
        """Send a request and return its answer; DeliveryFailed if there is none."""
        await asyncio.sleep(self._chance.between(0.0002, 0.02))
        server = self.servers.get(address)
        if server is None or server.dead or server.app is None or (between and server.refusing):
            raise ConnectFailed("nothing listens there")
        if between and server.stalled:
            await asyncio.Event().wait()
        if self._chance.happens(_LOST):
            raise ConnectionBroken("the request was lost")
        exchange = SimulatedExchange(method, target, headers, body, server)
        loop = asyncio.get_running_loop()
        server.process.context.run(loop.call_soon, server.app.take_on, exchange)
        try:
            answer = await exchange.answer
        finally:
            exchange.hang_up()
        await asyncio.sleep(self._chance.between(0.0002, 0.02))
        if between and server.stalled:
            await asyncio.Event().wait()
        if server.has_crashed or self._chance.happens(_LOST):
            raise ConnectionBroken("the answer was lost")
        return answer


class NodeClient:
    """The HTTP client by which one node asks others."""

    def __init__(self, network: SimulatedNetwork, own: Listener) -> None:
        self._network = network
        self._own = own

    async def send(self, head: RequestHead, body: bytes, *, repeatable: bool = True) -> Answer:
        """Send a request to another node."""
        if self._own.dead:
            raise asyncio.CancelledError
        headers = [(name.encode(), value.encode()) for name, value in head.headers]
        headers.append((b"host", head.target.authority.encode()))
        target = head.target
        try:
            async with asyncio.timeout(HOP_S):
                return await self._network.ask(
                    target.authority, head.method, target.path.encode(), headers, body, between=not self._own.dead
                )
        except TimeoutError as error:
            raise AnswerTimedOut(HOP_S) from error
