"""Lets a Python worker of a streaming source answer Spark before it imports anything.

Spark waits 10 s for such a worker to connect, which no setting changes. By itself a worker connects after it has
imported PySpark: half a second on a quiet machine, and more than 10 s where many processes want each core. So Spark
starts this file (`spark.workers.worker_python`), which connects at once and then runs the worker's module on that
connection. It is run by its path, and imports nothing else before it has connected.
"""

import os
import socket
import sys


def main(module: str) -> None:
    """Connect to Spark, and run the module of the worker."""
    path = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
    early = [_connected(path)] if path else []

    import runpy
    from importlib import import_module
    from typing import Any

    worker_util: Any = import_module("pyspark.worker_util")
    connect = worker_util.local_connect_and_auth

    def connected(place: Any, secret: Any) -> Any:
        if not early:
            return connect(place, secret)
        connection = early.pop()
        return connection.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", "65536"))), connection

    worker_util.local_connect_and_auth = connected
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _connected(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    return connection


if __name__ == "__main__":
    # As `python -m` has it; this file's directory has modules with names that others have, too.
    sys.path[0] = os.getcwd()
    main(sys.argv[1])
