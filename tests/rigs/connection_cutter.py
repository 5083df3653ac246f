"""Proxies that cut, refuse or stall connections on demand: before a PostgreSQL server, or before any port."""

import socket
import threading
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit


class ConnectionProxy:
    """A proxy that passes bytes on to a port of this machine or a Unix socket, until it is asked not to."""

    def __init__(self, target: int | str | None = None) -> None:
        self.target = target
        """A port, or the path of a socket; connections made before it is set are closed."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self.cut_before_request = self.cut_before_answer = self.refusing = self.stalled = False
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Cut every connection now."""
        for each in list(self._open):
            self._close(each)

    def _close(self, each: socket.socket) -> None:
        self._open.discard(each)
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = None if self.refusing else self._connect()
                if server is None:
                    client.close()
                    continue
                self._open |= {client, server}
                for source, sink, to_server in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=(source, sink, to_server), daemon=True).start()

    def _connect(self) -> socket.socket | None:
        with suppress(OSError):
            if isinstance(self.target, int):
                return socket.create_connection(("127.0.0.1", self.target))
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self.target or "")
            except OSError:
                server.close()
                raise
            return server
        return None

    def _pump(self, source: socket.socket, sink: socket.socket, to_server: bool) -> None:
        with suppress(OSError):
            while chunk := source.recv(1 << 16):
                if self.cut_before_request if to_server else self.cut_before_answer:
                    self.cut_before_request = self.cut_before_answer = False
                    self.cuts += 1
                    break
                if self.stalled:
                    continue
                sink.sendall(chunk)
        for each in (source, sink):
            self._close(each)


class Cutter(ConnectionProxy):
    """A proxy before a PostgreSQL server that cuts its connections on demand."""

    def __init__(self, postgres_url: str) -> None:
        given = urlsplit(postgres_url)
        (directory,) = parse_qs(given.query)["host"]
        super().__init__(f"{directory}/.s.PGSQL.5432")
        user = f"{given.netloc.rpartition('@')[0]}@" if "@" in given.netloc else ""
        self.url = given._replace(netloc=f"{user}127.0.0.1:{self.port}", query="sslmode=disable").geturl()
        """Of the same database, through this proxy."""
