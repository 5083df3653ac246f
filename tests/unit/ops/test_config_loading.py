import pickle
from dataclasses import FrozenInstanceError, dataclass, field
from ipaddress import ip_network
from pathlib import Path

import pytest

from penstock.domain.errors import InvalidArgument
from penstock.ops.config import Config, ConfigError, kinds, load
from penstock.ops.config.loader import Loaded, resolve, trace
from penstock.ops.config.setting import setting
from penstock.ops.config.tree import Durability, LogFormat


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def problems_of(document: dict[str, object], **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        resolve(Config, document, "penstock.toml", environ)
    return [str(problem) for problem in caught.value.problems]


def loaded(document: dict[str, object], **environ: str) -> Loaded[Config]:
    return resolve(Config, document, "penstock.toml", environ)


def test_nothing_given_is_the_defaults() -> None:
    config = load(environ={})
    assert config == Config()
    assert config.data.dir == Path("./penstock-data")
    assert config.data.durability is Durability.FSYNC
    assert (config.http.host, config.http.port) == ("127.0.0.1", 8080)
    assert config.node.id is None


def test_the_tree_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Config().http.port = 1  # type: ignore[misc]


def test_a_file_in_the_working_directory_is_read() -> None:
    Path("penstock.toml").write_text('[http]\nport = 9000\n[log]\nformat = "json"\n')
    found = trace(environ={})
    assert found.config.http.port == 9000
    assert found.config.log.format is LogFormat.JSON
    assert found.sources == {"http.port": "penstock.toml", "log.format": "penstock.toml"}


def test_a_named_file_replaces_the_one_in_the_working_directory() -> None:
    Path("penstock.toml").write_text("[http]\nport = 9000\n")
    Path("other.toml").write_text("[http]\nport = 9001\n")
    assert load(Path("other.toml"), environ={}).http.port == 9001


def test_the_environment_wins() -> None:
    found = loaded({"http": {"port": 9000}}, PENSTOCK_HTTP__PORT="9002")
    assert found.config.http.port == 9002
    assert found.sources == {"http.port": "PENSTOCK_HTTP__PORT"}


def test_networks_are_separated_by_commas_in_the_environment() -> None:
    found = loaded({}, PENSTOCK_EGRESS__ALLOW="127.0.0.0/8, ::1/128")
    assert found.config.egress.allow == (ip_network("127.0.0.0/8"), ip_network("::1/128"))


def test_an_empty_variable_unsets_the_node_id() -> None:
    assert loaded({"node": {"id": 7}}, PENSTOCK_NODE__ID="").config.node.id is None


def test_a_bad_value_names_key_value_source_and_what_is_allowed() -> None:
    assert problems_of({"http": {"port": 99999}}) == [
        "http.port (penstock.toml): 99999 is not allowed; give a whole number from 0 to 65535"
    ]
    assert problems_of({}, PENSTOCK_LOG__FORMAT="xml") == [
        "log.format (PENSTOCK_LOG__FORMAT): 'xml' is not allowed; give one of auto, json, human"
    ]


def test_an_unknown_key_names_the_nearest() -> None:
    assert problems_of({"http": {"prot": 1}}) == [
        "http.prot (penstock.toml): no such setting; the nearest is http.port"
    ]
    assert "the nearest is queue.window_bytes" in problems_of({"quue": {"window_bytes": 1}})[0]
    assert "the nearest is http.port" in problems_of({"htt": {}})[0]


def test_an_unknown_variable_names_the_nearest() -> None:
    assert problems_of({}, PENSTOCK_HTTP_PORT="1") == [
        "PENSTOCK_HTTP_PORT (environment): no such setting; the nearest is PENSTOCK_HTTP__PORT (http.port)"
    ]


def test_a_section_given_as_a_value_says_how_to_write_it() -> None:
    assert "write [http]" in problems_of({"http": 8080})[0]


def test_all_problems_are_reported_together() -> None:
    found = problems_of(
        {"http": {"port": "x", "hots": "y"}, "egress": {"allow": ["10.0.0.1/8"]}},
        PENSTOCK_HTTP__PORT="-1",
        PENSTOCK_NODE__ID="1024",
        PENSTOCK_NOPE="",
    )
    assert len(found) == 6


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PENSTOCK_SERVICE_HOST", "10.0.0.1"),
        ("PENSTOCK_SQS_SERVICE_PORT", "9324"),
        ("PENSTOCK_SERVICE_PORT_HTTP", "8080"),
        ("PENSTOCK_PORT", "tcp://10.0.0.1:8080"),
        ("PENSTOCK_PORT_8080_TCP_ADDR", "10.0.0.1"),
    ],
)
def test_variables_that_kubernetes_sets_for_a_service_are_ignored(name: str, value: str) -> None:
    assert loaded({}, **{name: value}).config == Config()


def test_a_file_that_cannot_be_used_is_a_configuration_error() -> None:
    Path("bad.toml").write_text("[http\n")
    Path("latin.toml").write_bytes(b'x = "\xe9"')
    Path("deep.toml").write_text("x = " + "[" * 5000)
    Path("long.toml").write_text("x = " + "9" * 5000)
    for name in ("bad.toml", "latin.toml", "deep.toml", "long.toml", "missing.toml", "."):
        with pytest.raises(ConfigError, match=f"^{name}: "):
            load(Path(name), environ={})


def test_a_number_too_large_to_print_is_a_configuration_error() -> None:
    Path("huge.toml").write_text("http.port = 0x" + "f" * 5000)
    with pytest.raises(ConfigError, match="too large to show"):
        load(Path("huge.toml"), environ={})


def test_a_password_is_never_in_a_message() -> None:
    for url in ("mysql://u:hunter2@h/db", "postgres://u:hun@ter2@h:99999/db", "host=h password=hunter2"):
        for text in problems_of({"data": {"database": url}}, PENSTOCK_DATA__DATABASE=url):
            assert "ter2" not in text
            assert "***" in text
    assert "hunter2" not in problems_of({"data": {"databse": "postgres://u:hunter2@h/db"}})[0]


@dataclass(frozen=True, kw_only=True)
class KeySettings:
    """Keys."""

    signing: str = setting("", kinds.line(), "Signs deliveries.", secret=True)


@dataclass(frozen=True, kw_only=True)
class KeyTree:
    key: KeySettings = field(default_factory=KeySettings)


def test_a_secret_is_never_in_a_message() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(KeyTree, {"key": {"signing": ["hunter2"]}}, "f", {"PENSTOCK_KEY__SIGNING": "hunter2\n"})
    assert "hunter2" not in str(caught.value)
    assert len(caught.value.problems) == 2


def test_the_error_is_an_invalid_argument_and_can_be_pickled() -> None:
    with pytest.raises(InvalidArgument) as caught:
        resolve(Config, {"x": 1}, "f", {})
    copy = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(copy, ConfigError)
    assert str(copy) == str(caught.value)
