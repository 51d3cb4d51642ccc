"""How much the shards of a folder take, and the sign that an extraction waits for room."""

import contextlib
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

_WAITING = "waiting-for-room"


def bytes_of_shards(folder: Path) -> int:
    """Bytes of all shards in `folder`, committed and in work."""
    total = 0
    for path in folder.glob("shard-*.safetensors*"):
        # Training may have removed it by now.
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


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
