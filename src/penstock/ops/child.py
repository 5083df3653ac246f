"""Run a part as a child process: the `penstock` command, which stops when the supervisor is gone for any reason.

On a node of a cluster it has the time of the database.
"""

import os
import runpy
import signal
from threading import Thread


def _stop_with_parent() -> None:
    # The supervisor keeps the other end of this pipe open as long as it lives.
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _share_time_with_other_nodes() -> None:
    url = os.environ.get("PENSTOCK_DATA__DATABASE", "")
    if url and os.environ.get("PENSTOCK_CLUSTER__NODE"):
        from penstock.cluster.nodes import go_by_database

        go_by_database(url)


if __name__ == "__main__":
    Thread(target=_stop_with_parent, daemon=True).start()
    _share_time_with_other_nodes()
    runpy.run_module("penstock", run_name="__main__", alter_sys=True)
