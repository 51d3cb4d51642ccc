"""Command of `debian_packages`: fetches the packages of a lock and links them into a folder.

python3 fetch_debs.py LOCK FOLDER leaves FOLDER/NAME.deb and FOLDER/state ("pinned" or "floating").
"""

import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.bootstrap import console, debian, host, process
from tools.bootstrap.cache import cache_root
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.pins import read_pins


def main() -> None:
    """Raises BootstrapError or OSError; the caller turns them into one line."""
    lock, folder = Path(sys.argv[1]), Path(sys.argv[2])
    host.require_apt()
    what = lock.name.partition(".")[0].replace("_", " ")
    pins = read_pins(lock)
    packages = debian.fetch(pins, cache_root(), what=what, strict=host.strict())
    pinned = {(pin.name, pin.version) for pin in pins.debs}
    folder.mkdir(parents=True)
    for file in packages.files:
        name, version = _name_and_version(file)
        if packages.state == debian.PINNED and (name, version) not in pinned:
            raise BootstrapError(
                f"{lock.name} has the hash of {name} {version} under another name or version: "
                "renew it with `python3 tools/bootstrap/refresh.py`"
            )
        _link(file, folder / f"{name}.deb")
    (folder / "state").write_text(packages.state + "\n", encoding="utf-8")


def _name_and_version(file: Path) -> tuple[str, str]:
    words = ["dpkg-deb", "--show", "--showformat=${Package} ${Version}", file]
    name, version = process.run(words, action=f"read {file}").split()
    return name, version


def _link(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)


if __name__ == "__main__":
    sys.exit(console.run(main))
