"""The package as an archive: complete, importable from where it is, and on executors that have nothing else of it."""

import json
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from penstock import __version__
from penstock.domain.message import fnv1a_32
from penstock.spark.package_archive import write_package
from tests.services.spark_cluster import SparkCluster

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]


def test_the_archive_holds_all_of_the_package_and_nothing_else(tmp_path: Path) -> None:
    import penstock

    write_package(tmp_path / "penstock.zip")
    root = Path(penstock.__file__).parent
    files = {f"penstock/{path.relative_to(root).as_posix()}" for path in root.rglob("*") if path.is_file()}
    with ZipFile(tmp_path / "penstock.zip") as archive:
        assert set(archive.namelist()) == {name for name in files if "__pycache__" not in name}
        assert archive.testzip() is None


def test_python_imports_from_the_archive(tmp_path: Path) -> None:
    write_package(tmp_path / "penstock.zip")
    code = "import penstock, penstock.events.store.statements as q; print(penstock.__version__, penstock.__file__)"
    # -I: neither this checkout's directory nor the environment are on the path; -S would take the dependencies away.
    script = f"import sys; sys.path.insert(0, {str(tmp_path / 'penstock.zip')!r}); {code}"
    ran = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    version, file = ran.stdout.split()
    assert version == __version__
    assert file.startswith(str(tmp_path / "penstock.zip"))


def test_executors_get_penstock_from_the_driver(spark_cluster: SparkCluster) -> None:
    conf = [f"{key}={value}" for key, value in spark_cluster.conf.items()]
    command = [sys.executable, "-m", "tests.pipeline.cluster_driver", spark_cluster.url, *conf]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert ran.returncode == 0, ran.stderr[-3000:]
    rows = json.loads(ran.stdout)
    assert len(rows) == 2
    for row in rows:
        assert ".zip/penstock/" in row["package"]
        assert row["sql"] > 0
        assert row["fnv"] == fnv1a_32("orders")


def test_a_killed_worker_leaves_nothing_and_can_come_back(spark_cluster: SparkCluster) -> None:
    assert running_workers(spark_cluster) == [True, True]
    spark_cluster.kill_worker(0)
    assert running_workers(spark_cluster) == [False, True]
    spark_cluster.restart_worker(0)
    assert running_workers(spark_cluster) == [True, True]


def running_workers(cluster: SparkCluster) -> list[bool]:
    processes = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [f"--work-dir {cluster.directory / f'work-{index}'} " in processes for index in range(2)]
