import pytest

from penstock.ops.telemetry.redaction import is_secret_name, mask_json_secrets, mask_secrets, mask_whole_url


@pytest.mark.parametrize(
    "name",
    [
        "authorization",
        "Proxy-Authorization",
        "authToken",
        "db_password",
        "client_secret_key",
        "api_key",
        "privateKey",
        "Cookie",
    ],
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["message_id", "group", "tokens_left", "pool", "author", "key"])
def test_other_names_are_not_secrets(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("to postgres://u:pw@h/db failed", "to postgres://u:***@h/db failed"),
        ("amqp://:p@w@h", "amqp://:***@h"),
        ("https://host:8080/a?mail=x@y.z", "https://host:8080/a?mail=x@y.z"),
        ("GET /?token=abc&x=1", "GET /?token=***&x=1"),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ('{"password": "a\\"b", "n": 1}', '{"password": ***, "n": 1}'),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_secrets_in_text_are_masked(text: str, masked: str) -> None:
    assert mask_secrets(text) == masked


def test_a_whole_url_is_masked_up_to_its_last_at_sign() -> None:
    assert mask_whole_url("postgres://u:a/b@c?d@h/db") == "postgres://u:***@h/db"
    assert mask_whole_url("postgres://u@h:5432/db") == "postgres://u@h:5432/db"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('{"id":"a","authToken":"v1.2.x","n":1}', '{"id":"a","authToken":"***","n":1}'),
        ('{"password" : "a \\" b", "x":"y"}', '{"password" : "***", "x":"y"}'),
        ('{"token":"cut off', '{"token":"***"'),
        ('{"tokens_used":"7","about":"token: x"}', '{"tokens_used":"7","about":"token: x"}'),
        ("no JSON, token=x", "no JSON, token=x"),
    ],
)
def test_json_keeps_its_form(text: str, masked: str) -> None:
    assert mask_json_secrets(text) == masked
