"""Spark's session: settings for a laptop, settings for a cluster, and a sentence where there is no Spark."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark import requirements
from penstock.spark.errors import InvalidPipelineOption, SparkUnavailable
from penstock.spark.session import JAVA_OPTIONS, PYTHON, SessionSettings, configuration, require_file_system
from tests.rigs.penstock_process import run_penstock

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

REMEDY = "install Java 17 or newer and set JAVA_HOME"


def test_one_machine_gets_the_tuned_settings_and_its_own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    conf = configuration(SessionSettings())
    assert conf["spark.master"] == "local[*]"
    assert conf["spark.ui.enabled"] == "false"
    assert f'exec {sys.executable} "$@"' in Path(conf[PYTHON]).read_text()
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert conf["spark.python.unix.domain.socket.enabled"] == "true"
    assert "UseSerialGC" in conf[JAVA_OPTIONS]
    assert "TieredStopAtLevel" not in conf[JAVA_OPTIONS]
    assert "TieredStopAtLevel=1" in configuration(SessionSettings(streams=True))[JAVA_OPTIONS]


@pytest.mark.parametrize("master", ["spark://h:7077", "yarn", "k8s://https://h:6443", "local-cluster[2,1,1024]"])
def test_a_cluster_keeps_its_own_memory_python_and_address(master: str) -> None:
    settings = SessionSettings(master=master, streams=True)
    conf = configuration(settings)
    assert not settings.is_local
    assert not {PYTHON, "spark.driver.memory", "spark.driver.host", "spark.sql.shuffle.partitions"} & set(conf)
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert "TieredStopAtLevel" not in conf[JAVA_OPTIONS]


def test_what_the_caller_says_goes_before_the_defaults_and_beside_the_jvm_options() -> None:
    given = {"spark.driver.memory": "2g", "spark.sql.session.timeZone": "CET", JAVA_OPTIONS: "-Dmine=1"}
    conf = configuration(SessionSettings(conf=given, ui=True), ("-Dours=1",))
    assert (conf["spark.driver.memory"], conf["spark.sql.session.timeZone"]) == ("2g", "CET")
    assert conf["spark.ui.enabled"] == "true"
    assert conf[JAVA_OPTIONS].index("-Dours=1") < conf[JAVA_OPTIONS].index("-Dmine=1")


def test_the_session_runs_as_it_was_told(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sparkContext.getConf().get("spark.scheduler.mode") == "FAIR"
    assert [row.total for row in spark.range(10).selectExpr("sum(id) as total").collect()] == [45]


def penstock(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return run_penstock("pipeline", *arguments, settings={"JAVA_HOME": str(home)}, cwd=home)


def fake_java(home: Path, version: str) -> None:
    (home / "bin").mkdir()
    (home / "bin/java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    (home / "bin/java").chmod(0o755)


@pytest.mark.parametrize("command", ["run", "fan-out"])
def test_without_java_a_command_says_what_to_do(command: str, tmp_path: Path) -> None:
    ran = penstock(command, "--data", str(tmp_path), home=tmp_path)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.startswith("error: Spark needs Java 17 or newer: ")
    assert "bin/java not found" in ran.stderr
    assert REMEDY in ran.stderr


def test_an_old_java_is_named_with_its_version(tmp_path: Path) -> None:
    fake_java(tmp_path, "11.0.22")
    ran = penstock("run", "--data", str(tmp_path), home=tmp_path)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "11.0.22 is too old" in ran.stderr
    assert REMEDY in ran.stderr
    assert "Traceback" not in ran.stderr


def test_help_needs_no_java(tmp_path: Path) -> None:
    ran = penstock("run", "--help", home=tmp_path)
    assert ran.returncode == 0
    assert "--only" in ran.stdout


def test_a_java_that_does_not_start_spark_is_told_with_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/java").write_text(
        '#!/bin/sh\n[ "$1" = -version ] && { echo \'openjdk version "17.0.1"\' >&2; exit; }\n'
        "echo 'Error: Could not find module jdk.incubator.vector' >&2\nexit 1\n"
    )
    (tmp_path / "bin/java").chmod(0o755)
    ran = penstock("run", "--only", "fan-out", "--port", "0", "--data", str(tmp_path), home=tmp_path)
    assert ran.returncode == 1
    assert "error: Spark's JVM does not start: Error: Could not find module jdk.incubator.vector" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "PACKAGES", ("pyspark", "no_such_package"))
    with pytest.raises(SparkUnavailable, match=r"no_such_package.*pip install 'penstock-events\[spark\]'"):
        requirements.require_spark()


def test_the_help_of_penstock_does_not_import_spark() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from penstock.cli.app import app\n"
        "assert CliRunner().invoke(app, ['pipeline', '--help']).exit_code == 0\n"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas', 'numpy') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3a://bucket/checkpoint", "add --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:3."),
        ("s3://bucket/checkpoint", "write s3a://bucket/checkpoint"),
        ("gs://bucket/checkpoint", "gcs-connector"),
        ("ftps://host/checkpoint", "Spark cannot use ftps://host/checkpoint"),
    ],
)
def test_a_package_that_is_missing_for_a_checkpoint_is_named(spark: SparkSession, url: str, said: str) -> None:
    with pytest.raises(InvalidPipelineOption) as refused:
        require_file_system(spark, url)
    assert said in refused.value.message
    assert "\n" not in refused.value.message


def test_directories_need_no_package(spark: SparkSession, tmp_path: Path) -> None:
    require_file_system(spark, str(tmp_path))
    require_file_system(spark, tmp_path.as_uri())
