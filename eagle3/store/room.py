"""How much the shards of a folder take, and the sign that an extraction waits for room."""

import contextlib
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

# A folder on a network takes a millisecond or more for each shard, of perhaps 300,000.
LOOKS_AT_ONCE = 16
_WAITING = "waiting-for-room"


def bytes_of_shards(folder: Path) -> int:
    """Bytes of all shards in `folder`, committed and in work."""
    total = 0
    for path in folder.glob("shard-*.safetensors*"):
        # Training may have removed it by now.
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def shard_sizes(folder: Path, shards: Iterable[str]) -> dict[str, int]:
    """Bytes of each of `shards` in `folder`, 0 where it was used and removed. Raises OSError."""
    names = list(shards)
    with ThreadPoolExecutor(LOOKS_AT_ONCE) as threads:
        sizes = threads.map(_size, (folder / name for name in names))
        return dict(zip(names, sizes, strict=True))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@contextmanager
def sign_of_waiting(folder: Path) -> Generator[None]:
    """Lets training know that nothing more comes until shards are removed.

    A kill leaves the sign; the next run that goes on removes it.
    """
    (folder / _WAITING).touch()
    try:
        yield
    finally:
        remove_sign(folder)


def remove_sign(folder: Path) -> None:
    """Nobody waits any more."""
    (folder / _WAITING).unlink(missing_ok=True)


def someone_waits(folders: Iterable[Path]) -> bool:
    """Whether the sign stands in one of `folders`."""
    return any((folder / _WAITING).exists() for folder in folders)
