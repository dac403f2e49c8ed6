"""A PostgreSQL server of one's own on this machine: Debian's, or that of the wheel ``pgserver``."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from privcalc.errors import PrivcalcError


def programs() -> Path | None:
    """The folder with initdb, or None."""
    places = [shutil.which("initdb"), *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), reverse=True)]
    wheel = importlib.util.find_spec("pgserver")
    if wheel is not None and wheel.origin is not None:
        places.append(str(Path(wheel.origin).parent / "pginstall" / "bin" / "initdb"))
    return next((Path(place).parent for place in places if place and Path(place).exists()), None)


class Server:
    """Started, stopped as if power failed, and started again; PostgreSQL refuses to run as root."""

    def __init__(self) -> None:
        found = programs()
        if found is None:
            raise PrivcalcError(
                "PostgreSQL: there is none on this machine; install the wheel pgserver, or Debian's postgresql"
            )
        self.bin = found
        self.user = "nobody" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
        self.folder = Path(tempfile.mkdtemp(prefix="privcalc-postgresql-", dir="/tmp"))
        if os.getuid() == 0:
            shutil.chown(self.folder, self.user)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"postgresql://budget@127.0.0.1:{self.port}/postgres"
        self.run("initdb", "-D", self.folder / "data", "-U", "budget", "-A", "trust", "-E", "UTF8", "--locale=C")
        self.start()

    def run(self, program: str, *arguments: object) -> None:
        """One of its programs."""
        switch: dict[str, Any] = {"user": self.user} if os.getuid() == 0 else {}
        subprocess.run(
            [self.bin / program, *map(str, arguments)],
            check=True, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120, **switch,
        )  # fmt: skip

    def start(self, **settings: object) -> None:
        """Go on with what is on the disk."""
        options: dict[str, object] = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            **settings,
        }
        text = " ".join(f"-c {name}={value or chr(39) * 2}" for name, value in options.items())
        log = self.folder / "log"
        self.run("pg_ctl", "-D", self.folder / "data", "-w", "-l", log, "-o", text, "start")

    def fail(self) -> None:
        """As if power failed: nothing is said to anybody, nothing is written any more."""
        self.run("pg_ctl", "-D", self.folder / "data", "-w", "-m", "immediate", "stop")

    def close(self) -> None:
        """End it, and take its files away."""
        self.fail()
        for _ in range(20):
            shutil.rmtree(self.folder, ignore_errors=True)
            if not self.folder.exists():
                break
            time.sleep(0.1)
