"""A real pgbouncer before the PostgreSQL server of a test."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.services import unavailable
from tests.services.nats import free_port, wait_until_listening

START_S = 60
# Neither runs as root; the package of the server creates this user, and only it may use the server's socket.
_USER = "pgserver"
_SETTINGS = """
[databases]
* = host={host} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
auth_type = any
pool_mode = {mode}
unix_socket_dir =
"""


@contextmanager
def pgbouncer(database: str, pool_mode: str) -> Iterator[str]:
    """Start it, and provide the URL of the database through it."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        unavailable("pgbouncer", "it is missing; apt-get install pgbouncer")
    parts, port = urlsplit(database), free_port()
    (host,) = parse_qs(parts.query)["host"]
    with tempfile.TemporaryDirectory(prefix="penstock-pgbouncer-") as place:
        file = Path(place) / "pgbouncer.ini"
        file.write_text(_SETTINGS.format(host=host, port=port, mode=pool_mode))
        user = _USER if os.geteuid() == 0 else None
        if user is not None:
            shutil.chown(place, user)
        process = subprocess.Popen([program, str(file)], user=user, stderr=subprocess.DEVNULL)
        try:
            wait_until_listening(process, port, START_S)
            yield f"postgresql://postgres@127.0.0.1:{port}{parts.path}"
        finally:
            process.terminate()
            process.wait(START_S)
