"""A private PostgreSQL, which BuildGrid's scheduler keeps its jobs in."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import psycopg

from tools.remote.errors import ServiceError
from tools.remote.processes import Command

_USER = "buildgrid"
_URL = f"postgresql://{_USER}@127.0.0.1:{{port}}/postgres"
_FOLDER = "database"
_NOBODY = 65534
_BIN = Path("usr/lib/postgresql/18/bin")

# PostgreSQL refuses to run as root. Another user could not read the programs or the data below
# root's home folder, hence the one capability.
_AS_NOBODY = (
    "setpriv",
    f"--reuid={_NOBODY}",
    f"--regid={_NOBODY}",
    "--clear-groups",
    # access(2) would not count the capability otherwise.
    "--securebits=+no_setuid_fixup",
    "--inh-caps=-all,+dac_override",
    "--ambient-caps=-all,+dac_override",
    "--pdeathsig=INT",
)

# The database holds jobs of the moment. After a crash of the machine it is made anew.
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "127.0.0.1",
    "max_connections": "100",
    "shared_buffers": "32MB",
    "synchronous_commit": "off",
    "unix_socket_directories": "",
}


class Postgres:
    """One cluster in a service's state folder, on a loopback port."""

    def __init__(self, programs: Path, state: Path, port: int) -> None:
        self._bin = programs / _BIN
        self._folder = state / _FOLDER
        self._port = port
        self.url = _URL.format(port=port)

    def initialise(self) -> None:
        """Makes the cluster, whole or not at all, where there is none. Raises ServiceError."""
        if self._folder.exists():
            return
        # A killed initdb leaves a folder that PostgreSQL neither starts in nor makes anew.
        partial = self._folder.with_suffix(".partial")
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(partial, _NOBODY, _NOBODY)
        words = [self._bin / "initdb", "-D", partial, "-U", _USER]
        words += ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        done = subprocess.run(
            [*_drop_root(), *words], capture_output=True, text=True, errors="replace"
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise ServiceError(f"cannot make a database in {self._folder}: {reason}")
        partial.rename(self._folder)

    def command(self) -> Command:
        words = [self._bin / "postgres", "-D", self._folder, "-p", str(self._port)]
        words += [f"--{name}={value}" for name, value in _SETTINGS.items()]
        # SIGINT: do not wait for clients to go.
        return Command("postgres", [*_drop_root(), *words], stop_signal=signal.SIGINT)

    def ready(self) -> bool:
        try:
            with psycopg.connect(self.url, connect_timeout=1):
                return True
        except psycopg.OperationalError:
            return False


def running_url(state: Path) -> str:
    """The database of the service that runs in this state folder. Raises ServiceError."""
    try:
        # PostgreSQL's own note of itself: its fourth line is the port.
        port = (state / _FOLDER / "postmaster.pid").read_text().splitlines()[3]
    except (OSError, IndexError):
        raise ServiceError(f"no service runs in {state}: start it, or name its --state") from None
    return _URL.format(port=port)


def _drop_root() -> tuple[str, ...]:
    return _AS_NOBODY if os.geteuid() == 0 else ()
