"""Run a part as a child process: the `penstock` command, which stops when the supervisor is gone for any reason."""

import os
import runpy
import signal
from threading import Thread


def _stop_with_parent() -> None:
    # The supervisor keeps the other end of this pipe open as long as it lives.
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    Thread(target=_stop_with_parent, daemon=True).start()
    runpy.run_module("penstock", run_name="__main__", alter_sys=True)
