"""The databases of a server know each other, so that one that is missing, empty or swapped is noticed at the start.

Each has a record with its own name and the names of all others. A database is named by the others only after it has
its own record, so an empty one that is named was replaced or is not mounted.
"""

from collections.abc import Collection, Mapping

import msgspec

from penstock.domain.errors import FailedPrecondition

MEMBER_RECORD = "#databases"
"""The stream whose configuration is the record; no partition has this name."""

_ADVICE = "if it is lost for good, start once with --give-up"


class Membership(msgspec.Struct, frozen=True):
    """What a database knows about itself and the others."""

    name: str
    server: int
    """A number that the databases of one server have in common."""
    members: tuple[str, ...]


encode_membership = msgspec.json.Encoder().encode
decode_membership = msgspec.json.Decoder(Membership).decode


def described(database: str) -> str:
    """Return how messages name a database."""
    return f"the database {database!r}" if database else "the server's own database"


def check_members(
    configured: Mapping[str, Membership | None], given_up: Collection[str], example: Mapping[str, str]
) -> None:
    """Raise FailedPrecondition unless the configured databases are those that the server had; new ones may be added.

    `configured` has None for a database without a record, `example` something that is stored in a database.
    """
    records = {name: record for name, record in configured.items() if record is not None}
    for name, record in records.items():
        if record.name != name:
            raise FailedPrecondition(
                f"{described(name)} of the configuration was {described(record.name)} before: are the two swapped?"
            )
    if len({record.server for record in records.values()}) > 1:
        raise FailedPrecondition(
            f"the databases {', '.join(map(repr, sorted(records)))} belong to different servers: check sqs.databases"
        )
    for member in sorted({member for record in records.values() for member in record.members} - set(given_up)):
        what = example.get(member, "data")
        if member not in configured:
            raise FailedPrecondition(
                f"{what} belongs to {described(member)}, which is not configured; add it to sqs.databases ({_ADVICE} "
                f"{member})"
            )
        if configured[member] is None:
            raise FailedPrecondition(
                f"{what} is not in {described(member)}, which is empty or not the one it was created in: is its disk "
                f"mounted? ({_ADVICE} {member!r})"
            )
