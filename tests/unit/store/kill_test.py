"""kill -9 at any moment of a run: nothing committed is lost, nothing half-written is seen."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from eagle3.store.index import INDEX
from eagle3.store.reader import StoreReader
from eagle3.store.sample import Sample
from eagle3.store.writer import StoreWriter
from tests.unit.store.stored import contents, make_manifest, make_samples, make_states, names

SAMPLES = make_samples(5)
MANIFEST = make_manifest(SAMPLES)
_SYSTEM_CALLS = ("write", "pwrite", "fsync", "rename", "truncate", "unlink")


def run(folder: Path, on_commit: Callable[[bytes], object] = len) -> None:
    """Commits what is missing, three samples a shard."""
    with StoreWriter(folder, MANIFEST) as store:
        missing = [sample for sample in SAMPLES if sample.id not in store.committed]
        for first in range(0, len(missing), 3):
            shard = missing[first : first + 3]
            store.begin(shard)
            for sample in shard:
                store.write(sample, make_states(sample))
            store.commit()
            on_commit("".join(sample.id for sample in shard).encode())


class Victim:
    """A run in a process of its own, which tells what it has committed."""

    def __init__(self, folder: Path, prepare: Callable[[], None]) -> None:
        reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            real_write = os.write
            exit_code = 1
            try:
                prepare()
                run(folder, on_commit=lambda ids: real_write(writer, ids))
                exit_code = 0
            finally:
                # Never back into pytest, whatever was raised.
                os._exit(exit_code)
        os.close(writer)
        self._pipe = os.fdopen(reader)

    def end(self) -> tuple[bool, set[str]]:
        """Waits for the end: whether it was a kill, and which samples were committed before."""
        with self._pipe as pipe:
            ids = pipe.read()
        _, status = os.waitpid(self._pid, 0)
        killed = os.WIFSIGNALED(status)
        assert killed or os.WEXITSTATUS(status) == 0
        return killed, {ids[start : start + 32] for start in range(0, len(ids), 32)}


def kill_at(moment: int) -> None:
    """Makes this process kill itself at the given one of all the moments of its run."""
    passed = 0

    def tick() -> bool:
        nonlocal passed
        passed += 1
        return passed == moment

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    real = {name: getattr(os, name) for name in _SYSTEM_CALLS}

    def hook(name: str, in_the_middle: Callable[..., None]) -> None:
        def hooked(*args: Any, **extra: Any) -> Any:
            if tick():
                in_the_middle(*args)
                die()
            result = real[name](*args, **extra)
            if tick():
                die()
            return result

        setattr(os, name, hooked)

    def half(content: Any) -> Any:
        return memoryview(content).cast("B")[: len(memoryview(content).cast("B")) // 2]

    def halve_file(descriptor: int) -> None:
        """What was not synced may be lost, as by a power cut."""
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        if path.is_file() and path.name != INDEX:
            real["truncate"](path, path.stat().st_size // 2)

    hook("write", lambda descriptor, content: real["write"](descriptor, half(content)))
    hook("pwrite", lambda file, content, place: real["pwrite"](file, half(content), place))
    hook("fsync", halve_file)
    for name in ("rename", "truncate", "unlink"):
        hook(name, lambda *_: None)


def check(folder: Path, committed: set[str]) -> None:
    """What was reported as committed is there, and all that is there is whole."""
    if (folder / "manifest.json").exists():
        assert committed <= set(StoreReader(folder).ids)
        expected = expected_contents()
        assert contents(folder).items() <= expected.items()
    else:
        assert not committed


def expected_contents() -> dict[str, tuple[Sample, bytes]]:
    """What an uninterrupted run leaves, made without a store."""

    def content(sample: Sample) -> bytes:
        return make_states(sample).view(torch.uint8).numpy().tobytes()

    return {sample.id: (sample, content(sample)) for sample in SAMPLES}


def check_resumed(folder: Path) -> None:
    """The run that goes on leaves what an uninterrupted one leaves, and no rubbish."""
    run(folder)
    assert contents(folder) == expected_contents()
    assert names(folder) == {"manifest.json", "index.jsonl", *StoreReader(folder).shards}
    assert (folder / "index.jsonl").read_bytes().count(b"\n") == len(SAMPLES)


def test_at_every_system_call_of_a_run(tmp_path: Path) -> None:
    moment = 0
    killed = True
    while killed:
        moment += 1
        folder = tmp_path / str(moment)
        killed, committed = Victim(folder, lambda at=moment: kill_at(at)).end()
        check(folder, committed)
        check_resumed(folder)
    # Header and tables, five samples with their journal lines, two commits, two manifests.
    assert moment > 2 * (2 * 2 + 5 * 2 + 2 * 5 + 2 * 3)


def test_at_every_system_call_of_the_run_that_goes_on(tmp_path: Path) -> None:
    """A run that was killed with whole rows in its shard, and then again while saving them."""
    moment = 0
    killed = True
    while killed:
        moment += 1
        folder = tmp_path / str(moment)
        Victim(folder, lambda: kill_after_writes(4)).end()
        killed, committed = Victim(folder, lambda at=moment: kill_at(at)).end()
        check(folder, committed)
        check_resumed(folder)


def kill_after_writes(count: int) -> None:
    """Lets so many samples become whole, and dies before the next."""
    real = StoreWriter.write
    written = 0

    def write(self: StoreWriter, *args: Any) -> None:
        nonlocal written
        if written == count:
            os.kill(os.getpid(), signal.SIGKILL)
        written += 1
        real(self, *args)

    StoreWriter.write = write  # type: ignore[method-assign]


def test_what_was_whole_in_the_shard_in_work_is_not_extracted_again(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    killed, committed = Victim(folder, lambda: kill_after_writes(4)).end()
    # Three samples of the first shard, one of the second; that one never came to its commit.
    assert (killed, len(committed)) == (True, 3)
    assert len(StoreReader(folder).ids) == 3
    with StoreWriter(folder, MANIFEST) as store:
        assert len(store.committed) == 4
    check_resumed(folder)


def test_rows_that_a_power_cut_took_do_not_count_whatever_the_journal_says(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    Victim(folder, lambda: kill_after_writes(4)).end()
    partial = folder / "shard-00001.safetensors.partial"
    content = bytearray(partial.read_bytes())
    content[4096:4100] = bytes(4)
    partial.write_bytes(content)
    with StoreWriter(folder, MANIFEST) as store:
        assert len(store.committed) == 3
    check_resumed(folder)
