"""Errors of reports.

NotFound
└── LakeEmpty    there are no facts at all where the lake should be
"""

from penstock.domain.errors import NotFound


class LakeEmpty(NotFound):
    """There are no facts at all where the lake should be."""

    def __init__(self) -> None:
        super().__init__(
            "the lake has no facts of any day: name another with --lake, fill it with `penstock pipeline facts`, "
            "or use --from-database"
        )
