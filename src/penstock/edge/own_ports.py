"""The ports that this process serves, which its own deliveries must never reach."""

_ports: set[int] = set()


def serve_port(port: int) -> None:
    """Note that this process serves a port, until it ends."""
    _ports.add(port)


def is_served_here(port: int) -> bool:
    """Return whether this process serves the port."""
    return port in _ports
