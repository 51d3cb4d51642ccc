"""kill -9 before, in the middle of and after every write, sync and rename of a run."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eagle3.store.index import INDEX
from eagle3.store.reader import StoreReader
from eagle3.store.writer import StoreWriter
from tests.unit.store.stored import make_manifest, make_samples, make_states

SAMPLES = make_samples(3)
MANIFEST = make_manifest(SAMPLES)


def run(folder: Path, on_commit: Callable[[bytes], object] = len) -> None:
    """Commits what is missing, the first two samples together and then the third."""
    with StoreWriter(folder, MANIFEST) as store:
        present = StoreReader(folder).ids
        for batch in (SAMPLES[:2], SAMPLES[2:]):
            for sample in batch:
                if sample.id not in present:
                    store.write(sample, make_states(sample))
            store.commit()
            on_commit("".join(sample.id for sample in batch).encode())


def run_and_die(folder: Path, moment: int) -> tuple[bool, set[str]]:
    """Runs in a child that is killed at `moment`: whether it was, and what it had committed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        real_write = os.write
        exit_code = 1
        try:
            _kill_at(moment)
            run(folder, on_commit=lambda ids: real_write(writer, ids))
            exit_code = 0
        finally:
            # Never back into pytest, whatever was raised.
            os._exit(exit_code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        ids = pipe.read()
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status)
    assert killed or os.WEXITSTATUS(status) == 0
    return killed, {ids[start : start + 32] for start in range(0, len(ids), 32)}


def _kill_at(moment: int) -> None:
    """Makes this process kill itself at the given one of all the moments of its run."""
    passed = 0

    def tick() -> bool:
        nonlocal passed
        passed += 1
        return passed == moment

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    real = {name: getattr(os, name) for name in ("write", "fsync", "rename")}

    def hook(name: str, halve: Callable[..., None]) -> None:
        def hooked(*args: Any) -> Any:
            if tick():
                halve(*args)
                die()
            result = real[name](*args)
            if tick():
                die()
            return result

        setattr(os, name, hooked)

    def halve_file(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        if path.is_file() and path.name != INDEX:
            os.truncate(path, path.stat().st_size // 2)

    hook("write", lambda descriptor, content: real["write"](descriptor, content[:-9]))
    hook("fsync", halve_file)
    hook("rename", lambda *_: None)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_nothing_committed_is_lost_and_nothing_half_written_is_seen(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    whole = contents(tmp_path / "whole")
    moment = 0
    killed = True
    while killed:
        moment += 1
        folder = tmp_path / str(moment)
        killed, committed = run_and_die(folder, moment)
        if (folder / "manifest.json").exists():
            store = StoreReader(folder)
            assert committed <= set(store.ids), moment
            for sample_id in store.ids:
                store.read(sample_id)
        else:
            assert not committed, moment
        run(folder)
        assert contents(folder) == whole, moment
    # Five files are synced and renamed, and two commits are written and synced.
    assert moment > 2 * (2 * 5 + 2 * 2)
