"""The faults that a run injects: kill -9, SIGSTOP, a clock that is set, a disk that is full."""

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from shutil import which
from struct import Struct
from time import monotonic, sleep

from scripts.fault_injection.claims import Fault
from tests.rigs.penstock_process import Machine, descendants

_DISK = "384m"
_CLOCK_SOURCE = Path(__file__).with_name("clock.c")
_SECONDS = Struct("=q")


class SetClock:
    """The wall clock of processes that are started with these settings, if there is a C compiler."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "clock"
        self.step(0)
        library = directory / "clock.so"
        command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(_CLOCK_SOURCE), "-ldl"]
        # libfaketime would do, but it slows every wait of a process down.
        built = which("cc") is not None and subprocess.run(command, check=True) is not None
        self.settings = {"LD_PRELOAD": str(library), "TORTURE_CLOCK_FILE": str(self._file)} if built else {}

    def step(self, by_s: int) -> None:
        """Set the clock to this much before or after the true time."""
        # In place: processes have mapped the file.
        with open(os.open(self._file, os.O_WRONLY | os.O_CREAT), "wb") as file:
            file.write(_SECONDS.pack(by_s))


class SmallDisk:
    """A file system of its own for the data, if this user may mount one."""

    def __init__(self, place: Path) -> None:
        self._place = place
        place.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK},mode=0700", "tmpfs", str(place)]
        self.is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0

    def fill(self) -> None:
        """Leave not a byte."""
        with suppress(OSError), (self._place / "ballast").open("wb", buffering=0) as ballast:
            for size in (1 << 20, 4096):
                with suppress(OSError):
                    while ballast.write(bytes(size)):
                        pass

    def free(self) -> None:
        """Give the space back."""
        (self._place / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        """Give the file system back."""
        if self.is_mounted:
            subprocess.run(["umount", "--lazy", str(self._place)], check=False)


class Faults:
    """Injects faults into a running `penstock up`, one at a time."""

    def __init__(self, machine: Machine, rng: Random, clock: SetClock, disk: SmallDisk, stop_all_s: float = 0) -> None:
        """`stop_all_s`: how long the whole machine is stopped at times."""
        self._machine = machine
        self._rng = rng
        self._clock = clock
        self._disk = disk
        self._stop_all_s = stop_all_s
        self.injected: list[Fault] = []
        kinds: dict[str, tuple[int, Callable[[], None]]] = {
            "kill a part": (6, self._kill_part),
            "kill all": (3 if stop_all_s else 1, self._kill_all),
            "stop all": (3 if stop_all_s else 0, self._stop_all),
            "end and start": (2 if stop_all_s else 0, self._restart),
            "stop a part": (3, self._stop_part),
            "set the clock": (2 if clock.settings else 0, self._set_clock),
            "fill the disk": (2 if disk.is_mounted else 0, self._fill_disk),
        }
        self._kinds = {name: action for name, (_, action) in kinds.items()}
        self._weights = [weight for weight, _ in kinds.values()]

    def inject(self) -> str:
        """Inject one fault, and return its name when what it lasts is over."""
        (name,) = self._rng.choices(list(self._kinds), self._weights)
        began_s = monotonic()
        self._kinds[name]()
        self.injected.append(Fault(name, began_s, monotonic()))
        return name

    def heal(self) -> None:
        """Leave a machine without faults."""
        self._clock.step(0)
        self._disk.free()

    def _part(self) -> int:
        return self._rng.choice(descendants(self._machine.pid) or [self._machine.pid])

    def _kill_part(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._part(), signal.SIGKILL)

    def _kill_all(self) -> None:
        self._machine.kill()
        self._machine.start()

    def _restart(self) -> None:
        self._machine.stop()
        self._machine.start()

    def _stop_all(self) -> None:
        pids = [self._machine.pid, *descendants(self._machine.pid)]
        for number, wait_s in ((signal.SIGSTOP, self._stop_all_s), (signal.SIGCONT, 0.0)):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            sleep(wait_s)

    def _stop_part(self) -> None:
        pid = self._part()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            sleep(self._rng.choice([0.1, 1, 5, 20, 45]))
            os.kill(pid, signal.SIGCONT)

    def _set_clock(self) -> None:
        self._clock.step(self._rng.choice([-3600, -600, -30, -2, 0, 2, 30, 600, 3600]))

    def _fill_disk(self) -> None:
        self._disk.fill()
        sleep(self._rng.uniform(2, 10))
        self._disk.free()
