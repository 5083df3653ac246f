"""Small files on whatever file system Spark writes to: a local disk, HDFS, an object store."""

from typing import Any

from pyspark.sql import SparkSession


class HadoopFiles:
    """The files under one directory, by their paths in it."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        # PySpark has no public door to Hadoop's file systems; this is the one its own code uses.
        self._jvm: Any = spark._jvm
        self._root = root
        configuration = spark._jsc.hadoopConfiguration()
        self._system: Any = self._path("").getFileSystem(configuration)

    def names(self, directory: str) -> list[str]:
        """What a directory holds, in order; nothing if there is no such directory."""
        path = self._path(directory)
        if not self._system.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(path))

    def read(self, path: str) -> bytes:
        """A file's contents."""
        stream = self._system.open(self._path(path))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, path: str, contents: bytes) -> None:
        """A whole file, or none: it gets its name when it is complete."""
        directory, _, name = path.rpartition("/")
        unnamed = self._path(f"{directory}/.{name}.unfinished")
        stream = self._system.create(unnamed, True)
        try:
            stream.write(contents)
        finally:
            stream.close()
        if not self._system.rename(unnamed, self._path(path)) and not self._system.exists(self._path(path)):
            raise OSError(f"{self._path(path)} could not be written: its file system refused to rename a file")

    def delete(self, path: str) -> None:
        """Remove a file, or a directory with all it holds, if it is there."""
        self._system.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._root}/{path}" if path else self._root)
