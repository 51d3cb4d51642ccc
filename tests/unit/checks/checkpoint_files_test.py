"""Missing, cut and mistaken files of weights are found by their headers."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from eagle3.checks.checkpoint_files import read_checkpoint_files
from eagle3.errors import InputError

INDEX = "model.safetensors.index.json"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Twelve files with a layer each, and an index."""
    weight_map = {}
    for number in range(12):
        name = f"model-{number + 1}-of-12.safetensors"
        tensor = f"model.layers.{number}.weight"
        save_file({tensor: np.zeros((3, 5), np.float32)}, tmp_path / name)
        weight_map[tensor] = name
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    return tmp_path


def test_a_whole_checkpoint_has_no_faults(model: Path) -> None:
    found = read_checkpoint_files(model)
    assert found.faults == ()
    assert [path.name.split("-")[1] for path in found.files] == [str(n) for n in range(1, 13)]
    assert found.size == sum(path.stat().st_size for path in model.glob("*.safetensors"))
    assert found.layers == {"model.layers": frozenset(range(12))}


def test_wide_weights_are_counted_as_they_are_loaded(model: Path) -> None:
    assert read_checkpoint_files(model).loaded == 12 * 15 * 2


def test_a_missing_file_is_found(model: Path) -> None:
    (model / "model-7-of-12.safetensors").unlink()
    assert read_checkpoint_files(model).faults == ("model-7-of-12.safetensors is missing",)


def test_a_cut_file_is_found(model: Path) -> None:
    path = model / "model-7-of-12.safetensors"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    [fault] = read_checkpoint_files(model).faults
    assert fault == f"{path.name} has {size - 1:,} bytes, and its header is one of {size:,}"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "is a pointer of git-lfs, not weights"),
        (b"<!DOCTYPE html><title>404</title>", "has no header of safetensors"),
        (b"", "has a damaged header"),
        (b"\2\0\0\0\0\0\0\0[]", "has a damaged header"),
        (b"\2\0\0\0\0\0\0\0\xff\xff", "has a damaged header"),
    ],
)
def test_what_is_no_file_of_weights_is_found(model: Path, content: bytes, fault: str) -> None:
    path = model / "model-7-of-12.safetensors"
    path.write_bytes(content)
    assert read_checkpoint_files(model).faults == (f"{path.name} {fault}",)


def test_a_tensor_that_is_elsewhere_is_found(model: Path) -> None:
    first, second = (model / f"model-{n}-of-12.safetensors" for n in (1, 2))
    first.write_bytes(second.read_bytes())
    faults = read_checkpoint_files(model).faults
    assert faults[0].startswith(f"{first.name} has no model.layers.0.weight, which the index says")


def test_without_an_index_all_files_count(model: Path) -> None:
    (model / INDEX).unlink()
    assert len(read_checkpoint_files(model).files) == 12


def test_of_pickled_weights_the_size_is_known(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(bytes(100))
    found = read_checkpoint_files(tmp_path)
    assert (found.size, found.layers, found.faults) == (100, {}, ())


def test_no_weights_and_a_damaged_index_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no weights in"):
        read_checkpoint_files(tmp_path)
    (tmp_path / INDEX).write_text("{}")
    with pytest.raises(InputError, match="is damaged"):
        read_checkpoint_files(tmp_path)
