"""A pooler before PostgreSQL: refused if it gives one connection to several clients, served if it gives sessions."""

from pathlib import Path

from tests.cluster.rig import nodes
from tests.rigs.penstock_process import SECRET, run_penstock
from tests.services.pgbouncer import pgbouncer

NODE = {"PENSTOCK_JOBS__AUTH_SECRET": SECRET}


def test_a_pooler_of_transactions_is_refused(postgres_database: str) -> None:
    with pgbouncer(postgres_database, "transaction") as url:
        for command in (("sqs", "--node", "a"), ("api",)):
            refused = run_penstock("serve", *command, "--database", url, "--port", "0", settings=NODE)
            assert refused.returncode != 0, command
            assert "set pool_mode = session" in refused.stderr, (command, refused.stderr)


def test_a_pooler_of_sessions_serves_a_cluster(tmp_path: Path, postgres_database: str) -> None:
    with pgbouncer(postgres_database, "session") as url, nodes(tmp_path, [url] * 2) as (owner, other):
        queue = other.anyone.create_queue(QueueName="q")["QueueUrl"]
        owner.anyone.send_message(QueueUrl=queue, MessageBody="x")
        owner.kill()
        (message,) = other.anyone.receive_message(QueueUrl=queue, WaitTimeSeconds=20)["Messages"]
        assert message["Body"] == "x"
