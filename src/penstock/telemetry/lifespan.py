"""The start-up and shut-down of an ASGI app."""

import asyncio

from penstock.core.errors import PenstockError
from penstock.telemetry.asgi import App, Message
from penstock.telemetry.errors import StartFailed
from penstock.telemetry.redaction import mask_secrets


class Lifespan:
    """Takes an app through its start-up, keeps it there, and through its shut-down."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._events: asyncio.Queue[Message] = asyncio.Queue()
        self._answers: asyncio.Queue[Message] = asyncio.Queue()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the app up; its own error if that is one of ours, else StartFailed with what is known."""
        self._running = asyncio.create_task(self._run())
        await self._events.put({"type": "lifespan.startup"})
        answer = await self._next_answer()
        if answer is None:
            self._raise_failure()
        elif answer["type"] == "lifespan.startup.failed":
            await asyncio.gather(self._running, return_exceptions=True)
            raise StartFailed(f"the service did not start: {answer.get('message') or 'the log says why'}")

    async def stop(self) -> None:
        """Shut the app down."""
        if self._running is None or self._running.done():
            return
        await self._events.put({"type": "lifespan.shutdown"})
        await self._next_answer()
        await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        await self._app(scope, self._events.get, self._answers.put)

    async def _next_answer(self) -> Message | None:
        """What the app says next; None when it ended without a word."""
        assert self._running is not None
        answering = asyncio.create_task(self._answers.get())
        await asyncio.wait((answering, self._running), return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            return answering.result()
        answering.cancel()
        return self._answers.get_nowait() if not self._answers.empty() else None

    def _raise_failure(self) -> None:
        assert self._running is not None
        error = self._running.exception()
        if isinstance(error, PenstockError):
            raise error
        if error is not None:
            reason = mask_secrets(f"{type(error).__name__}: {error}")
            raise StartFailed(f"the service did not start: {reason}") from error
