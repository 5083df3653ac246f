import pytest

from tests.services import unavailable


def test_a_missing_service_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="ActiveMQ is not available: no Java"):
        unavailable("ActiveMQ", "no Java")


def test_a_missing_service_skips_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="ActiveMQ is not available: no Java"):
        unavailable("ActiveMQ", "no Java")
