"""What is kept of a change."""

import pytest

from penstock.http.api.changes import MOST_CHARACTERS, shown


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (b"", ""),
        (b'{"b": 1, "a": "x"}', '{"a":"x","b":1}'),
        (b'{"secret": "hunter2", "a": [{"apiToken": "hunter2"}]}', '{"a":[{"apiToken":"***"}],"secret":"***"}'),
        (b'{"headers": {"Authorization": "Bearer hunter2"}}', '{"headers":{"Authorization":"***"}}'),
        (b'{"target": "https://user:hunter2@example.com/"}', '{"target":"https://user:***@example.com/"}'),
        (b"no json\x00", "no json\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_secrets_are_masked(body: bytes, kept: str) -> None:
    assert shown(body) == kept


def test_only_the_beginning_is_kept() -> None:
    assert len(shown(b'{"a": "' + b"x" * 10_000 + b'"}')) == MOST_CHARACTERS
