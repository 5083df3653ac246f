"""Processor time and memory of a tree of processes, from /proc: each part of Penstock, Spark's JVM and PostgreSQL."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from penstock.domain.errors import FailedPrecondition

_PROC = Path("/proc")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat, counted from the state, which follows the name.
_PARENT, _CPU = 1, slice(11, 15)
_NAMES = {"dispatch": "api", "run": "pipeline"}


class RunningProcess(NamedTuple):
    """A process and the processor time of it and of its children that have ended."""

    pid: int
    parent: int
    name: str
    arguments: Sequence[str]
    cpu_s: float

    def part(self, of_parent: str) -> str:
        """Return the part that it belongs to, given its parent's."""
        if self.name == "java":
            return "jvm"
        if of_parent in ("jvm", "workers"):
            return "workers"
        for command, follower in zip(self.arguments, self.arguments[1:], strict=False):
            if command in ("serve", "pipeline"):
                return _NAMES.get(follower, follower)
        return of_parent


class Usage(NamedTuple):
    """Processor seconds by part; the number of processes, and their memory without counting shared pages twice."""

    cpu_s: Mapping[str, float]
    processes: int
    memory_mb: float


def usage(roots: Mapping[int, str]) -> Usage:
    """Return what these processes and all their descendants have used; `roots` names the part of each root."""
    cpu_s: Counter[str] = Counter()
    memory_kb = processes = 0
    for part, process in _family(roots):
        cpu_s[part] += process.cpu_s  # type: ignore[assignment]
        memory_kb += _memory_kb(process.pid)
        processes += 1
    return Usage(cpu_s, processes, memory_kb / 1024)


def spent_s(before: Usage, after: Usage) -> dict[str, float]:
    """Return the processor seconds of each part between two readings, the largest first."""
    parts = {part: after.cpu_s[part] - before.cpu_s.get(part, 0.0) for part in after.cpu_s}
    return dict(sorted(parts.items(), key=lambda each: -each[1]))


def parent_of(pid: int) -> int:
    """Return the parent of a process."""
    process = _read(pid)
    if process is None:
        raise FailedPrecondition(f"there is no process {pid} on this machine")
    return process.parent


def require_proc() -> None:
    """Raise FailedPrecondition if this system has no /proc."""
    if not (_PROC / "self" / "stat").exists():
        raise FailedPrecondition("this benchmark reads processor time from /proc, which this system does not have")


def _family(roots: Mapping[int, str]) -> Iterator[tuple[str, RunningProcess]]:
    running = [process for entry in _PROC.iterdir() if entry.name.isdigit() and (process := _read(int(entry.name)))]
    children: dict[int, list[RunningProcess]] = {}
    for process in running:
        children.setdefault(process.parent, []).append(process)
    found = [(name, process) for process in running for pid, name in roots.items() if process.pid == pid]
    for part, process in found:
        yield part, process
        found += [(child.part(part), child) for child in children.get(process.pid, ())]


def _read(pid: int) -> RunningProcess | None:
    with suppress(FileNotFoundError, ProcessLookupError):
        head, _, tail = (_PROC / str(pid) / "stat").read_text().rpartition(")")
        fields = tail.split()
        arguments = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        cpu_s = sum(map(int, fields[_CPU])) * _TICK_S
        return RunningProcess(pid, int(fields[_PARENT]), head.partition("(")[2], arguments, cpu_s)
    return None


def _memory_kb(pid: int) -> int:
    with suppress(OSError):
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0
