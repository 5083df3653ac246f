"""A real ActiveMQ broker with a STOMP connector and its scheduler."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.services import unavailable
from tests.services.nats import free_port, wait_until_listening

HOME = Path("/usr/share/activemq")
START_S = 60
STOP_S = 60
CONFIGURATION = """\
<beans xmlns="http://www.springframework.org/schema/beans" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
    http://www.springframework.org/schema/beans/spring-beans.xsd
    http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="test" dataDirectory="{directory}/data"
    schedulerSupport="{scheduler}" useJmx="false" useShutdownHook="true">
    <persistenceAdapter><kahaDB directory="{directory}/kahadb" journalMaxFileLength="4mb"/></persistenceAdapter>
    <systemUsage><systemUsage>
      <memoryUsage><memoryUsage limit="64 mb"/></memoryUsage>
      <storeUsage><storeUsage limit="512 mb"/></storeUsage>
      <tempUsage><tempUsage limit="64 mb"/></tempUsage>
      <jobSchedulerUsage><jobSchedulerUsage limit="256 mb"/></jobSchedulerUsage>
    </systemUsage></systemUsage>
    <transportConnectors>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:{port}"/>
    </transportConnectors>
  </broker>
</beans>
"""
LOGGING = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %-5p %c %m%n
"""


class ActiveMQ:
    """One broker process; `start` after `stop` or `kill` brings it back with the same data on the same port."""

    def __init__(self, directory: Path, *, scheduler: bool = True) -> None:
        self._directory = directory
        self._scheduler = str(scheduler).lower()
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"stomp://127.0.0.1:{self.port}"

    def start(self) -> "ActiveMQ":
        """Start and wait until it listens."""
        configuration = self._directory / "activemq.xml"
        settings = {"directory": self._directory, "port": self.port, "scheduler": self._scheduler}
        configuration.write_text(CONFIGURATION.format(**settings))
        (self._directory / "log4j.properties").write_text(LOGGING)
        with (self._directory / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*_java(self._directory), "start", f"xbean:file:{configuration}"], stdout=log, stderr=log
            )
        wait_until_listening(self.process, self.port, START_S)
        return self

    def stop(self) -> None:
        """Stop it gracefully."""
        self._end("terminate")

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end("kill")

    def _end(self, how: str) -> None:
        if self.process is not None:
            process, self.process = self.process, None
            getattr(process, how)()
            process.wait(STOP_S)


def _java(directory: Path) -> list[str]:
    small = ["-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    places = [f"-Dactivemq.{name}={directory}" for name in ("base", "conf", "data")]
    classes = ":".join([str(directory), f"{HOME}/lib/*", f"{HOME}/lib/optional/*", f"{HOME}/bin/activemq.jar"])
    return [
        "java",
        *small,
        f"-Dactivemq.home={HOME}",
        *places,
        "-cp",
        classes,
        "org.apache.activemq.console.Main",
    ]


@pytest.fixture(scope="session")
def activemq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActiveMQ]:
    """The broker of the session; tests use queues of their own, and start it again if they have stopped it."""
    with running_activemq(tmp_path_factory.mktemp("activemq")) as broker:
        yield broker


@contextmanager
def running_activemq(directory: Path, *, scheduler: bool = True) -> Iterator[ActiveMQ]:
    """A broker, with or without a scheduler, stopped on the way out."""
    if shutil.which("java") is None or not HOME.is_dir():
        unavailable("ActiveMQ", f"java or {HOME} is missing; apt-get install activemq")
    directory.mkdir(exist_ok=True)
    broker = ActiveMQ(directory, scheduler=scheduler)
    try:
        yield broker.start()
    finally:
        broker.stop()
