"""A file of API keys that may change while it is used: who was removed is refused from the next request on."""

import logging
from pathlib import Path

from penstock.config.errors import ConfigError
from penstock.telemetry.api_keys import ApiKey, read_keys

log = logging.getLogger(__name__)

Stamp = tuple[int, int, int]


class KeyFile:
    """Reads the keys anew whenever the file was written. One that cannot be used leaves the keys as they were."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = _stamp(path)
        self._keys = read_keys(path)

    def current(self) -> tuple[ApiKey, ...]:
        """The keys as they are now."""
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._keys = read_keys(self._path)
            except ConfigError as error:
                log.error("the API keys cannot be read; those known before stay valid", extra={"error": str(error)})
            else:
                log.info("API keys read", extra={"keys": len(self._keys)})
        return self._keys


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
