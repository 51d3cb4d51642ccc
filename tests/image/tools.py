"""Programs that the tests run, from pinned Debian packages in a private folder."""

import subprocess
from pathlib import Path

from tools.oci.deb import Deb

_LIBRARIES = "usr/lib/x86_64-linux-gnu"


class TestTools:
    """Packages unpacked below a folder, run with their own C library: the host's may be older."""

    __test__ = False

    def __init__(self, debs: list[Path], folder: Path) -> None:
        self._root = folder
        for deb in debs:
            with Deb(deb).files() as archive:
                archive.extractall(folder, filter="tar")

    def command(self, program: str) -> list[str]:
        """The words that start usr/bin/`program`."""
        libraries = self._root / _LIBRARIES
        loader = libraries / "ld-linux-x86-64.so.2"
        found = self._root / "usr/bin" / program
        return [str(loader), "--library-path", str(libraries), str(found)]

    def run(self, program: str, *arguments: str | Path) -> str:
        """What a program writes; its complaint fails the test."""
        words = [*self.command(program), *map(str, arguments)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, program: str, *arguments: str | Path, log: Path) -> subprocess.Popen[bytes]:
        """Leaves it running; what it writes goes to `log`."""
        words = [*self.command(program), *map(str, arguments)]
        with log.open("wb") as output:
            return subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)
