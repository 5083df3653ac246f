"""Processes whose wall clock is set as a machine's is, by libfaketime."""

from pathlib import Path

from tests.services import unavailable

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


class SetClock:
    """The clock of processes that run with `settings`; skips the test if libfaketime is not installed."""

    def __init__(self, file: Path) -> None:
        if LIBRARY is None:
            unavailable("libfaketime", "it is not installed; apt-get install faketime")
        self._file = file
        self.settings = {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            # As on a real machine, where only the wall clock is set.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self.step(0)

    def step(self, by_s: int) -> None:
        """Set the clock to this much before or after the true time."""
        self._file.write_text(f"{by_s:+d}\n")
