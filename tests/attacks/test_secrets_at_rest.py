"""Who reads the database, its file or a backup learns no signing secret and no header value, if a key was set."""

from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.delivery import SEALED, Breakers, CourierSettings, SecretBox, SecretUnreadable, encryption_keys
from penstock.domain.errors import FailedPrecondition
from penstock.domain.outcome import MediationOutcome
from penstock.domain.pointer import MessagePointer
from penstock.domain.subscription import Subscription
from penstock.events.process import LocalProcessing, ProcessSettings
from penstock.ops.backup import back_up, restore
from penstock.ops.config import JobsOptions
from penstock.ops.telemetry import Metrics
from penstock.spark.database import SparkDatabase
from penstock.testing.clock import VirtualClock
from penstock.testing.receiver import RecordingReceiver, Reply
from tests.rigs.dispatch import SECRET, DispatchRig, dispatch_rig
from tests.rigs.job_database import Connect, fetch
from tests.rigs.made_jobs import dispatch_job
from tests.rigs.penstock_process import Machine
from tests.rigs.tls import certificate_and_key

OLD, NEW = b"1" * 32, b"2" * 32
HEADERS = {"x-api-key": "hunter2-hunter2"}
WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
V1 = "/api/v1"


def stored(database: SparkDatabase) -> str:
    ((definition,),) = fetch(database, "SELECT definition FROM subscriptions")
    return str(definition)


async def is_delivered(rig: DispatchRig, number: int, secret: str) -> bool:
    """Whether an event arrives with the signature and the header."""
    await rig.publish(number)
    await rig.dispatch_all()
    request = rig.receiver.requests[-1]
    return rig.signed_by(request, secret) and request.headers["x-api-key"] == HEADERS["x-api-key"]


async def test_what_is_stored_is_encrypted_and_deliveries_are_signed(database: SparkDatabase, connect: Connect) -> None:
    async with dispatch_rig(connect(), encryption_keys=(OLD,)) as rig:
        subscription_id, secret = await rig.subscribe(headers=HEADERS)
        assert await is_delivered(rig, 1, secret)
        path = f"{V1}/subscriptions/{subscription_id}"
        await rig.ask("PATCH", path, {"headers": {"x-api-key": "***"}, "timeoutS": 7})
        assert await is_delivered(rig, 2, secret)
        second = (await rig.ask("POST", f"{path}/rotate-secret", {"secret": WHSEC})).body
        assert second == {"secret": WHSEC, "secrets": 2}
        assert await is_delivered(rig, 3, secret)
        assert await is_delivered(rig, 4, WHSEC)
        assert (await rig.ask("POST", f"{path}/test")).body["delivered"]
        assert rig.signed_by(rig.receiver.requests[-1], WHSEC)
        definition = stored(database)
    assert definition.count(SEALED) == 3
    for value in (secret, WHSEC, HEADERS["x-api-key"]):
        assert value not in definition


async def test_header_values_of_jobs_are_encrypted_too(database: SparkDatabase, connect: Connect) -> None:
    async with dispatch_rig(connect(), encryption_keys=(OLD,)) as rig:
        job = {"target": rig.receiver.url, "payload": "x", "headers": HEADERS}
        await rig.ask("POST", f"{V1}/jobs", job)
        await rig.dispatch_all()
        assert rig.receiver.requests[-1].headers["x-api-key"] == HEADERS["x-api-key"]
        ((headers,),) = fetch(database, "SELECT headers FROM jobs")
        assert SEALED in headers
        assert HEADERS["x-api-key"] not in headers
        looks_sealed = {**job, "headers": {"x-api-key": f"{SEALED}x:y"}}
        assert (await rig.ask("POST", f"{V1}/jobs", looks_sealed)).status == 400


def test_a_replay_opens_what_was_sealed_for_its_original_and_nothing_else() -> None:
    box = SecretBox((OLD,))
    sealed = box.sealed_headers(HEADERS, "0A")
    assert box.opened_job(dispatch_job(id="0A~R1", headers=sealed)).headers == HEADERS
    with pytest.raises(SecretUnreadable, match="job 0B is damaged"):
        box.opened_job(dispatch_job(id="0B", headers=sealed))


async def test_a_job_whose_key_is_gone_fails_and_says_which_key(database: SparkDatabase, connect: Connect) -> None:
    async with dispatch_rig(connect(), encryption_keys=(OLD,)) as rig:
        job = {"target": rig.receiver.url, "payload": "x", "headers": HEADERS}
        job_id = (await rig.ask("POST", f"{V1}/jobs", job)).body["id"]
    async with dispatch_rig(connect(), encryption_keys=(NEW,)) as rig:
        await rig.dispatch_all()
        (attempt, *_) = await rig.attempts(job_id)
        assert f"a secret of job {job_id} is encrypted with key" in attempt["error"]
        assert rig.receiver.requests == []


async def test_what_endpoints_are_shown_is_encrypted_too(database: SparkDatabase, connect: Connect) -> None:
    public, private = (text.decode() for text in certificate_and_key("ours"))
    token = Reply(body=b'{"access_token":"t1","token_type":"bearer"}')
    async with RecordingReceiver(token) as issuer, dispatch_rig(connect(), encryption_keys=(OLD,)) as rig:
        oauth2 = {"tokenUrl": issuer.url, "clientId": "penstock", "clientSecret": "hunter2-hunter2"}
        await rig.subscribe(oauth2=oauth2)
        pem = {"certificate": public, "privateKey": private}
        body = {"name": "erp", "pattern": "erp:**", "target": "https://erp.example/", "clientCertificate": pem}
        assert (await rig.ask("POST", f"{V1}/subscriptions", body)).status == 200
        await rig.publish()
        await rig.dispatch_all()
        assert rig.receiver.requests[-1].headers["authorization"] == "Bearer t1"
        kept = str(fetch(database, "SELECT definition FROM subscriptions"))
        opened = [SecretBox((OLD,)).opened(each) for each in await rig.repository.list_subscriptions()]
    assert kept.count(SEALED) == 4
    assert "hunter2" not in kept
    assert "PRIVATE KEY" not in kept
    assert [each.client_certificate.private_key for each in opened if each.client_certificate] == [private]


async def test_a_private_key_is_stored_encrypted_and_shown_to_no_one(database: SparkDatabase, connect: Connect) -> None:
    async with dispatch_rig(connect(), encryption_keys=(OLD,)) as rig:
        subscription_id, public = await rig.subscribe(signature="ed25519", headers=HEADERS)
        assert await is_delivered(rig, 1, public)
        path = f"{V1}/subscriptions/{subscription_id}"
        assert (await rig.ask("GET", f"{path}/public-keys")).body == {"keys": [public]}
        assert "whsk_" not in stored(database)
    assert stored(database).count(SEALED) == 2


async def test_a_key_is_introduced_and_replaced_at_a_start(database: SparkDatabase, connect: Connect) -> None:
    async with dispatch_rig(connect()) as rig:
        subscription_id, secret = await rig.subscribe(headers=HEADERS)
        await rig.ask("POST", f"{V1}/subscriptions/{subscription_id}/pause")
    assert secret in stored(database)
    seen = []
    for keys in ((OLD,), (NEW, OLD), (NEW,)):
        async with dispatch_rig(connect(), encryption_keys=keys) as rig:
            assert (await rig.ask("GET", f"{V1}/subscriptions/{subscription_id}")).body["paused"]
            seen.append(stored(database))
    assert seen[0] != seen[1] == seen[2]
    assert secret not in "".join(seen)
    async with dispatch_rig(connect(), encryption_keys=(NEW,)) as rig:
        await rig.ask("POST", f"{V1}/subscriptions/{subscription_id}/resume")
        await rig.ask("PATCH", f"{V1}/subscriptions/{subscription_id}", {"target": f"{rig.receiver.url}/new"})
        assert await is_delivered(rig, 1, secret)


@pytest.mark.parametrize("keys", [(), (NEW,)], ids=["missing", "wrong"])
async def test_without_the_key_nothing_starts(connect: Connect, keys: tuple[bytes, ...]) -> None:
    async with dispatch_rig(connect(), encryption_keys=(OLD,)) as rig:
        await rig.subscribe("billing")
    reason = r"subscription 'billing' .* is encrypted with key \w+, and .* set the key .* jobs\.encryption_keys"
    with pytest.raises(SecretUnreadable, match=reason):
        async with dispatch_rig(connect(), encryption_keys=keys):
            pass
    settings = ProcessSettings(secrets=(SECRET,), encryption_keys=keys)
    clock = VirtualClock()
    local = LocalProcessing(connect(), clock, settings)
    with pytest.raises(SecretUnreadable, match=reason):
        async with local.mediator(NoMediator(), Breakers(clock), Metrics("router")):
            pass


class NoMediator:
    """Is never asked."""

    async def attempt(self, pointer: MessagePointer, attempt: int) -> MediationOutcome | None:
        raise AssertionError(pointer, attempt)


async def test_a_secret_of_another_row_cannot_be_opened(connect: Connect) -> None:
    box = SecretBox((OLD,))
    one, other = (
        Subscription(id=name, name=name, pattern="**", target="https://a.example/", secrets=(WHSEC,)) for name in "ab"
    )
    moved = box.sealed(one).secrets
    assert box.opened(box.sealed(one)) == one
    with pytest.raises(SecretUnreadable, match=r"subscription 'b' \(b\) is damaged"):
        box.opened(Subscription(id=other.id, name=other.name, pattern="**", target=other.target, secrets=moved))


async def test_a_header_that_looks_encrypted_is_refused(connect: Connect) -> None:
    async with dispatch_rig(connect()) as rig:
        body = {"name": "n", "pattern": "**", "target": "https://a.example/", "headers": {"x-a": f"{SEALED}x"}}
        assert (await rig.ask("POST", f"{V1}/subscriptions", body)).status == 400


def test_keys_come_from_the_setting_and_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{b64encode(NEW).decode()}\n{b64encode(OLD).decode()}\n")
    assert encryption_keys(JobsOptions(encryption_key_file=str(file))) == (NEW, OLD)
    given = b64encode(OLD).decode()
    assert encryption_keys(JobsOptions(encryption_keys=given, encryption_key_file=str(file))) == (OLD, NEW)
    assert encryption_keys(JobsOptions()) == ()


@pytest.mark.parametrize("text", ["hunter2", b64encode(b"short").decode(), "ä"])
def test_what_is_not_a_key_is_refused_without_being_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    for options in (JobsOptions(encryption_keys=text), JobsOptions(encryption_key_file=str(file))):
        with pytest.raises(FailedPrecondition, match=r"not 32 bytes in base64; create one with") as refused:
            encryption_keys(options)
        assert text not in refused.value.message
    with pytest.raises(FailedPrecondition, match="cannot be read"):
        encryption_keys(JobsOptions(encryption_key_file=str(tmp_path / "missing")))


def test_keys_are_not_shown() -> None:
    assert repr(NEW) not in repr(CourierSettings(encryption_keys=(NEW,)))
    assert repr(NEW) not in repr(ProcessSettings(secrets=(SECRET,), encryption_keys=(NEW,)))


async def test_neither_the_files_nor_a_backup_have_what_was_there_before_the_key(tmp_path: Path) -> None:
    """Through `penstock up`: secrets of an installation that gets a key later."""
    key = b64encode(NEW).decode()
    async with RecordingReceiver() as receiver:
        with Machine(tmp_path) as machine:
            options = ("--target", receiver.url, "--secret", WHSEC)
            machine.penstock("subscriptions", "create", "s", "--pattern", "t:**", *options)
        assert WHSEC.encode() in contents(machine.data.glob("jobs.db*"))
        with Machine(tmp_path, settings={"PENSTOCK_JOBS__ENCRYPTION_KEYS": key}) as machine:
            machine.penstock("publish", "t:one", "--key", "k")
            (request,) = await receiver.received(1, 60)
            assert request.headers["webhook-signature"]
            assert WHSEC.encode() not in contents(machine.data.glob("jobs.db*"))
            back_up(machine.data, tmp_path / "backup.tar.gz")
    assert key not in machine.log()
    restore(tmp_path / "backup.tar.gz", tmp_path / "restored")
    kept = contents((tmp_path / "restored").iterdir())
    assert b"SQLite format 3" in kept
    assert WHSEC.encode() not in kept
    without = Machine(tmp_path)
    with pytest.raises(AssertionError, match="is encrypted with key"), without:
        pass


def contents(files: Iterable[Path]) -> bytes:
    return b"".join(path.read_bytes() for path in files)
