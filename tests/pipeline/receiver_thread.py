"""A receiver on a loop of its own, for tests whose thread waits for Spark."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.testing.receiver import RecordingReceiver, Reply

Result = TypeVar("Result")


class ReceiverThread:
    """Serves until it is stopped."""

    def __init__(self, default: Reply) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="receiver")
        self._thread.start()
        self.receiver = self._run(_started(default))

    def stop(self) -> None:
        """Hang up, and end the thread."""
        self._run(self.receiver.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)


async def _started(default: Reply) -> RecordingReceiver:
    return await RecordingReceiver(default).__aenter__()
