"""The SELECT of a range of a table."""

from collections.abc import Sequence

import msgspec

from penstock.events.store.statements import Dialect
from penstock.pipeline.sources.key_range import KeyRange
from penstock.pipeline.sources.literal import literal
from penstock.pipeline.sources.stored_table import StoredTable, expression


class Query(msgspec.Struct, frozen=True):
    """What is asked of a table; `prefix` is its schema in the database, with the dot."""

    table: StoredTable
    columns: tuple[str, ...]
    dialect: Dialect
    prefix: str = ""
    conditions: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The column its ranges are made of."""
        return self.table.key_in(self.dialect)

    @property
    def where(self) -> str:
        """What a row has to meet."""
        return " AND ".join((self.table.where, *self.conditions))

    @property
    def selected(self) -> tuple[str, ...]:
        """The columns in the order they come: those asked for, then what is missing to name a row."""
        return (*self.columns, *(name for name in self.table.identity if name not in self.columns))

    def narrowed(self, conditions: Sequence[str]) -> "Query":
        """The same with more conditions."""
        return msgspec.structs.replace(self, conditions=(*self.conditions, *conditions))

    def text(self, span: KeyRange) -> str:
        """The rows of a range, in SQL."""
        bounds = [
            f"{self.key} {sign} {literal(edge, self.dialect)}"
            for sign, edge in ((">=", span.lower), ("<", span.upper))
            if edge is not None
        ]
        wanted = ", ".join(expression(column) for column in self.selected)
        where = " AND ".join((*bounds, self.where))
        return " UNION ALL ".join(
            f"SELECT {wanted} FROM {self.prefix}{part} WHERE {where}" for part in self.table.parts
        )
