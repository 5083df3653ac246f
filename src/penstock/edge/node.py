"""The node number of this process: no two running processes of a machine have the same one.

A process claims a number by locking a file named after it; the lock ends with the process. The search starts at a
number derived from the host's name, so that machines without a configured number rarely collide; with several
machines, set `node.id` (or PENSTOCK_NODE__ID) on each.
"""

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from zlib import crc32

from penstock.domain.errors import ResourceExhausted
from penstock.domain.ids import MAX_NODE, TsidFactory

_held_locks: list[int] = []
_factories: dict[tuple[int, int | None], TsidFactory] = {}


def process_ids(node: int | None = None) -> TsidFactory:
    """Return the id factory of this process, with the configured node number or a claimed one."""
    # A forked child shares its parent's lock, so it must claim its own number.
    key = (os.getpid(), node)
    factory = _factories.get(key)
    if factory is None:
        number = claim_node(_slot_directory()) if node is None else node
        factory = _factories.setdefault(key, TsidFactory(number))
    return factory


def claim_node(directory: Path) -> int:
    """Lock the first free node number for the lifetime of this process."""
    start = crc32(socket.gethostname().encode()) % (MAX_NODE + 1)
    for offset in range(MAX_NODE + 1):
        node = (start + offset) % (MAX_NODE + 1)
        if _lock(directory / str(node)):
            return node
    raise ResourceExhausted(
        f"all {MAX_NODE + 1} node numbers in {directory} are taken by running processes; set node.id on each machine"
    )


def _lock(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError:
        return False  # another user's file, or not a regular file
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return False
    _held_locks.append(handle)
    return True


def _slot_directory() -> Path:
    directory = Path(tempfile.gettempdir()) / "penstock-nodes"
    try:
        directory.mkdir()
        directory.chmod(0o1777)
    except FileExistsError:
        pass
    return directory
