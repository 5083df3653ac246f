"""Several processes that do one service together: started, told to stop, and ended as one."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from threading import Thread
from types import FrameType


def run_workers(count: int, work: Callable[[int], None]) -> bool:
    """Run `work(0)` to `work(count - 1)`, each in a process of its own; whether all of them ended well.

    Signals to stop go to every worker. When one ends by itself the others are told to stop: together or not at all.
    """
    # A fork would take this process's locks and threads along in whatever state they are.
    context = multiprocessing.get_context("spawn")
    workers: list[BaseProcess] = [
        context.Process(target=_worker, args=(work, n), name=f"worker {n}") for n in range(count)
    ]

    told: set[int] = set()

    def forward(number: int, _: FrameType | None) -> None:
        told.add(number)
        for worker in workers:
            if worker.pid is not None and worker.is_alive():
                os.kill(worker.pid, number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for worker in workers:
            worker.start()
        wait([worker.sentinel for worker in workers])
        # One that is stopping already would take a second signal for impatience.
        if not told:
            forward(signal.SIGTERM, None)
        for worker in workers:
            worker.join()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return all(worker.exitcode == 0 for worker in workers)


def _worker(work: Callable[[int], None], number: int) -> None:
    # Out of the terminal's group: Ctrl-C reaches the parent alone, which passes it on once.
    os.setpgrp()
    parent = multiprocessing.parent_process()
    assert parent is not None
    Thread(target=_stop_with, args=(parent.sentinel,), daemon=True).start()
    work(number)


def _stop_with(parent: int) -> None:
    """Stop this process when its parent is gone, however that ended."""
    wait([parent])
    os.kill(os.getpid(), signal.SIGTERM)
