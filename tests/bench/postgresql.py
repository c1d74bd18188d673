"""A PostgreSQL of one's own, in a folder that goes with it, from the programs that Debian installs."""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

# It keeps nothing beyond the tests: what is written need not reach the disk.
SETTINGS = {"fsync": "off", "listen_addresses": "127.0.0.1", "max_connections": "200"}


def program(name: str = "initdb") -> str | None:
    """The path of one of its programs, which Debian keeps beside those of other versions, or None."""
    beside = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(beside[-1]) if beside else shutil.which(name)


class Server:
    """A running PostgreSQL, which can be stopped and started again on the same port."""

    def __init__(self, folder: Path):
        self.data, self.numbers = folder / "data", itertools.count()
        self.settings = SETTINGS | {"port": str(_free_port()), "unix_socket_directories": str(folder)}
        self.user: dict[str, Any] = {}
        if os.getuid() == 0:  # which it refuses
            shutil.chown(folder, "postgres")
            self.user = {"user": "postgres", "group": "postgres", "extra_groups": []}
        made = [program(), "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        made += ["--locale=C", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, cwd=folder, **self.user)
        self.start()

    def start(self) -> None:
        settings = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        self.process = subprocess.Popen(
            [program("postgres"), "-D", str(self.data), *settings],
            cwd=self.data,
            stderr=subprocess.DEVNULL,
            **self.user,
        )
        while self.process.poll() is None:
            with contextlib.suppress(psycopg.OperationalError), self._connection():
                return
            time.sleep(0.05)
        raise RuntimeError("PostgreSQL has not started")

    def stop(self) -> None:
        """As its administrator does: connections are closed, what is committed stays."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)

    def database(self) -> str:
        """The address of a new, empty database."""
        name = f"rooms_{next(self.numbers)}"
        with self._connection() as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://postgres@127.0.0.1:{self.settings['port']}/{name}"

    def _connection(self) -> psycopg.Connection:
        address = f"postgresql://postgres@127.0.0.1:{self.settings['port']}/postgres"
        return psycopg.connect(address, autocommit=True, connect_timeout=5)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = Server(Path(folder))
        try:
            yield server
        finally:
            server.stop()
