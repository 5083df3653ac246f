"""A socket to listen on, or a sentence that says why there is none."""

import errno
import ipaddress
import socket

from penstock.telemetry.errors import CannotListen, ExposedWithoutCredentials, PortInUse

CHOOSE_ANOTHER = "choose another port"
"""What is said of a port that cannot be had: who knows the port's option puts it behind this."""

# Who listens on all addresses is reached by this one, and no guard or browser takes the others for an address.
_LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def listening_socket(host: str, port: int, *, credentials_set: bool) -> socket.socket:
    """A listening socket (port 0 takes a free one), on loopback only unless credentials are set."""
    family, address = _resolve(host, port)
    if not credentials_set and not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        raise ExposedWithoutCredentials(
            f"will not listen on {host}: other machines could use this service, and it asks for no "
            "credentials; set credentials, or listen on 127.0.0.1"
        )
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restart must not wait for the connections of the last run to leave TIME_WAIT.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen()
    except OSError as error:
        sock.close()
        raise _refusal(host, port, error) from error
    sock.setblocking(False)
    return sock


def url_of(host: str, sock: socket.socket) -> str:
    """The URL under which the socket is reached from this machine."""
    name = _LOOPBACK_OF.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{sock.getsockname()[1]}"


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise CannotListen(f"cannot find the address {host}: {error}; give an IP address of this machine") from error
    # IPv4 first: a client that was told "localhost" may know no IPv6.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, str(address[0])


def _refusal(host: str, port: int, error: OSError) -> CannotListen:
    if error.errno == errno.EADDRINUSE:
        return PortInUse(
            f"port {port} on {host} is in use by another program; stop it, or {CHOOSE_ANOTHER} (0 takes a free one)"
        )
    if error.errno == errno.EACCES:
        return CannotListen(f"no permission to listen on port {port}; {CHOOSE_ANOTHER}, one above 1023")
    reason = error.strerror or str(error)
    return CannotListen(f"cannot listen on {host}:{port}: {reason}; give an IP address of this machine")
