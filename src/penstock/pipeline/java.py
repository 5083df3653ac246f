"""The Java that Spark would use: JAVA_HOME's, else the one on the path."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import msgspec

from penstock.pipeline.errors import SparkUnavailable

LEAST = 17
_ASK_S = 20


class Java(msgspec.Struct, frozen=True):
    """A Java that is new enough."""

    command: str
    version: str


def find_java() -> Java:
    """The Java that Spark would use; SparkUnavailable says what is wrong with it, not what to do."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else "java"
    try:
        ran = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=_ASK_S, check=True)
    except FileNotFoundError as error:
        raise SparkUnavailable(f"{command} not found") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise SparkUnavailable(f"{command} does not run ({error})") from error
    version = re.search(r'version "([^"]+)"', ran.stderr + ran.stdout)
    if version is None:
        raise SparkUnavailable(f"{command} tells no version")
    if java_major(version[1]) < LEAST:
        raise SparkUnavailable(f"{version[1]} is too old")
    return Java(shutil.which(command) or command, version[1])


def java_major(version: str) -> int:
    """The major version: 17 of "17.0.15", 8 of the old notation "1.8.0_402"."""
    first, second = [*re.findall(r"\d+", version), "0", "0"][:2]
    return int(second) if first == "1" else int(first)
