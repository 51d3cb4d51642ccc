"""Which checkpoints stay, and what is said of damaged ones."""

from pathlib import Path

import pytest
import torch

from eagle3.errors import StoreError
from eagle3.training.checkpoint import (
    CHECKPOINTS,
    RunState,
    best_checkpoint,
    newest_checkpoint,
    read_state,
    read_tensors,
    save_checkpoint,
)
from eagle3.training.config import TrainConfig

CONFIG = TrainConfig()


def save(out: Path, step: int, acceptance: float | None, keep: int = 2) -> Path:
    state = RunState(CONFIG, "a" * 64, step, acceptance)
    return save_checkpoint(out, state, {"draft": {"weight": torch.full((2,), step)}}, keep)


def steps(out: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in (out / CHECKPOINTS).iterdir())


def test_what_is_saved_is_read(tmp_path: Path) -> None:
    folder = save(tmp_path, 7, 1.5)
    assert read_state(folder) == RunState(CONFIG, "a" * 64, 7, 1.5)
    assert torch.equal(read_tensors(folder, "draft")["weight"], torch.tensor([7, 7]))


def test_the_newest_and_the_best_stay(tmp_path: Path) -> None:
    for step, acceptance in [(1, 1.2), (2, 1.9), (3, 1.4), (4, 1.3), (5, None)]:
        save(tmp_path, step, acceptance)
    assert steps(tmp_path) == [2, 5]
    assert (best_checkpoint(tmp_path) or tmp_path).name == "step-00000002"
    assert (newest_checkpoint(tmp_path) or tmp_path).name == "step-00000005"


def test_more_are_kept_where_asked_for(tmp_path: Path) -> None:
    for step, acceptance in [(1, 1.9), (2, 1.2), (3, 1.4), (4, 1.3)]:
        save(tmp_path, step, acceptance, keep=3)
    assert steps(tmp_path) == [1, 3, 4]


def test_the_same_step_may_be_saved_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 3, None)
    # Its tensors stay where they are: a kill must not find the step without them.
    monkeypatch.delattr("eagle3.training.checkpoint.save_file")
    folder = save(tmp_path, 3, 1.5)
    assert read_state(folder).acceptance == 1.5
    assert torch.equal(read_tensors(folder, "draft")["weight"], torch.tensor([3, 3]))


def test_a_kill_while_an_old_one_is_removed_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(Exception):
        pass

    def remove_a_part(folder: Path) -> None:
        (folder / "state.json").unlink()
        raise KilledError

    save(tmp_path, 1, 1.1)
    save(tmp_path, 2, 1.9)
    with monkeypatch.context() as patch:
        patch.setattr("eagle3.training.checkpoint.shutil.rmtree", remove_a_part)
        with pytest.raises(KilledError):
            save(tmp_path, 3, 1.4)
    assert (best_checkpoint(tmp_path) or tmp_path).name == "step-00000002"
    save(tmp_path, 4, 1.3)
    assert steps(tmp_path) == [2, 4]


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) is None
    assert best_checkpoint(tmp_path) is None


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    folder = save(tmp_path, 3, None)
    for path in folder.iterdir():
        path.write_bytes(b"{")
    with pytest.raises(StoreError, match=r"step-00000003 is damaged .*; remove it"):
        read_state(folder)
    with pytest.raises(StoreError, match=r"step-00000003 is damaged .*; remove it"):
        read_tensors(folder, "draft")


def test_a_disk_that_refuses_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 3, None)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("eagle3.training.checkpoint.save_file", full)
    with pytest.raises(StoreError, match=r"No space left on device; the checkpoint before it"):
        save(tmp_path, 4, None)
    assert (newest_checkpoint(tmp_path) or tmp_path).name == "step-00000003"
