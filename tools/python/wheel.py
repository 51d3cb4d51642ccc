"""Command of `wheel_repository`: fetches one pinned wheel, cached by its hash, and unpacks it.

python3 wheel.py NAME VERSION SHA256 SIZE FOLDER leaves the wheel's files in FOLDER/wheel, and its
programs, executable, in FOLDER/scripts.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.bootstrap import console, wheels
from tools.bootstrap.cache import cache_root
from tools.bootstrap.pins import Pin


def main() -> None:
    """Raises BootstrapError or OSError; the caller turns them into one line."""
    name, version, digest, size, folder = sys.argv[1:]
    pin = Pin(name, version, digest, int(size))
    wheel = wheels.fetch([pin], cache_root(), what=name)[name]
    wheels.unpack(wheel, Path(folder, "wheel"))
    for scripts in Path(folder, "wheel").glob("*.data/scripts"):
        for program in scripts.iterdir():
            program.chmod(0o755)
        Path(folder, "scripts").symlink_to(scripts, target_is_directory=True)


if __name__ == "__main__":
    sys.exit(console.run(main))
