"""Forward migrations: applied in order at start, recorded with a checksum, never edited once released.

Each names in its first line the oldest code that still works on the migrated tables, so that old nodes keep working
while new ones start.
"""

import re
from functools import cache
from hashlib import sha256
from importlib.resources import files

import msgspec

from penstock.events.errors import MigrationChanged, SchemaTooNew
from penstock.events.store.statements import Dialect

_FIRST_LINE = re.compile(r"-- works with code from version (\d+)\n")


class Migration(msgspec.Struct, frozen=True):
    """One step of the tables' history."""

    version: int
    name: str
    text: str
    works_with: int

    @property
    def checksum(self) -> str:
        """Equal for two migrations of one name only if they are the same."""
        return sha256(self.text.encode()).hexdigest()


class Applied(msgspec.Struct, frozen=True):
    """A migration that was applied to a database."""

    version: int
    name: str
    checksum: str
    works_with: int


@cache
def migrations(dialect: Dialect) -> tuple[Migration, ...]:
    """Return all migrations of a database, in order."""
    directory = files(__name__) / dialect
    scripts = sorted((entry for entry in directory.iterdir() if entry.name.endswith(".sql")), key=lambda e: e.name)
    return tuple(parsed(script.name, script.read_text(encoding="utf-8")) for script in scripts)


def parsed(file_name: str, text: str) -> Migration:
    """Return the migration in a file."""
    header = _FIRST_LINE.match(text)
    if header is None:
        raise ValueError(f"{file_name} does not begin with '-- works with code from version N'")
    name = file_name.removesuffix(".sql")
    return Migration(int(name.partition("_")[0]), name, text, int(header[1]))


def missing(known: tuple[Migration, ...], applied: list[Applied]) -> list[Migration]:
    """Return what a database still needs; MigrationChanged or SchemaTooNew when this code must not touch it."""
    newest = known[-1].version
    had: dict[int, Applied | Migration] = {step.version: step for step in applied}
    for step in applied:
        if step.works_with > newest:
            raise SchemaTooNew(step.version, newest)
    for migration in known:
        if had.get(migration.version, migration).checksum != migration.checksum:
            raise MigrationChanged(migration.name)
    return [migration for migration in known if migration.version not in had]
