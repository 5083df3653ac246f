"""Tokens of the process endpoint: bound to a job, to a time and to a secret."""

from pathlib import Path

import pytest

from penstock.domain.errors import FailedPrecondition, InvalidArgument
from penstock.events.process.tokens import FILE_NAME, LIFETIME_S, AuthTokens, auth_secrets
from penstock.ops.config.dispatch_options import JobsOptions
from penstock.sqs.queue.attribute_rules import MAX_RETENTION_S

OLD, NEW = b"the secret of last week", b"the secret of this week"
JOB, OTHER_JOB = "0HZXEQ5Y8JY5Z", "0HZXEQ5Y8JY60"
NOW_MS = 1_700_000_000_000
END_MS = NOW_MS + LIFETIME_S * 1000


def test_a_token_is_good_for_its_job_until_it_expires() -> None:
    tokens = AuthTokens([NEW])
    token = tokens.token(JOB, NOW_MS)
    assert tokens.check(token, JOB, NOW_MS)
    assert tokens.check(token, JOB, END_MS - 1)
    assert not tokens.check(token, JOB, END_MS)


def test_a_token_outlives_the_longest_retention_of_a_queue() -> None:
    tokens = AuthTokens([NEW])
    assert tokens.check(tokens.token(JOB, NOW_MS), JOB, NOW_MS + MAX_RETENTION_S * 1000)


def test_a_token_is_not_good_for_another_job() -> None:
    tokens = AuthTokens([NEW])
    assert not tokens.check(tokens.token(JOB, NOW_MS), OTHER_JOB, NOW_MS)


def test_a_token_made_with_another_secret_is_refused() -> None:
    assert not AuthTokens([NEW]).check(AuthTokens([OLD]).token(JOB, NOW_MS), JOB, NOW_MS)


def test_a_secret_can_be_replaced_without_refusing_tokens_under_way() -> None:
    both = AuthTokens([NEW, OLD])
    assert both.check(AuthTokens([OLD]).token(JOB, NOW_MS), JOB, NOW_MS)
    assert AuthTokens([NEW]).check(both.token(JOB, NOW_MS), JOB, NOW_MS)


def test_a_later_expiry_breaks_the_signature() -> None:
    tokens = AuthTokens([NEW])
    version, expiry, signature = tokens.token(JOB, NOW_MS).split(".")
    assert not tokens.check(f"{version}.{int(expiry) + 1}.{signature}", JOB, NOW_MS)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "v1",
        "v1..",
        f"v2.1900000000.{'A' * 43}",
        f"v1.19000\u066000000.{'A' * 43}",
        "v1.1900000000.A",
        "\u00fc" * 60,
    ],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    assert not AuthTokens([NEW]).check(token, JOB, NOW_MS)


@pytest.mark.parametrize("secrets", [[], [b"short"], [NEW, b""]])
def test_a_secret_that_could_be_guessed_is_not_taken(secrets: list[bytes]) -> None:
    with pytest.raises(InvalidArgument, match="16 bytes"):
        AuthTokens(secrets)


def test_the_settings_name_the_secrets_the_new_one_first() -> None:
    options = JobsOptions(auth_secret=NEW.decode(), previous_auth_secret=OLD.decode())
    assert auth_secrets(options, None) == (NEW, OLD)


def test_without_a_setting_the_data_directory_keeps_one_secret_for_all_its_processes(tmp_path: Path) -> None:
    (secret,) = auth_secrets(JobsOptions(), tmp_path / "data")
    assert auth_secrets(JobsOptions(), tmp_path / "data") == (secret,)
    file = tmp_path / "data" / FILE_NAME
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == [FILE_NAME]
    assert auth_secrets(JobsOptions(), tmp_path / "other") != (secret,)


def test_without_a_setting_and_without_a_directory_there_is_no_secret() -> None:
    with pytest.raises(FailedPrecondition, match=r"set jobs\.auth_secret"):
        auth_secrets(JobsOptions(), None)


def test_a_setting_that_could_be_guessed_is_refused_by_name() -> None:
    with pytest.raises(FailedPrecondition, match=r"jobs\.previous_auth_secret is too short"):
        auth_secrets(JobsOptions(auth_secret=NEW.decode(), previous_auth_secret="hunter2"), None)


def test_a_file_that_holds_no_secret_is_told(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("\n")
    with pytest.raises(FailedPrecondition, match="delete it"):
        auth_secrets(JobsOptions(), tmp_path)
