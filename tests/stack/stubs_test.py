"""The stubs change nothing: the states are those of a stack with every CUDA library real."""

import os
import subprocess
import sys
from pathlib import Path

import torch
from runfiles import Runfiles
from safetensors.torch import load_file

_CUBLAS = "nvidia/cublas/lib/libcublas.so.12"


def _located(path: str) -> Path:
    runfiles = Runfiles.Create()
    found = runfiles.Rlocation(path) if runfiles else None
    assert found, path
    return Path(found)


def _states(stack: str, file: Path) -> dict[str, torch.Tensor]:
    script = _located("eagle3_training/tests/stack/states.py")
    model = _located("eagle3_training/third_party/models/smollm2")
    path = [_located(f"{stack}/site-packages"), script.parents[2]]
    subprocess.run(
        [sys.executable, script, model, file],
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
    )
    return load_file(file)


def test_one_stack_has_stubs_and_the_other_has_not() -> None:
    size = {
        stack: _located(f"{stack}/site-packages").joinpath(_CUBLAS).stat().st_size
        for stack in ("stack_cpu", "stack_cpu_full")
    }
    assert size["stack_cpu"] < 100_000
    assert size["stack_cpu_full"] > 50_000_000


def test_states_are_the_same_bit_for_bit(tmp_path: Path) -> None:
    with_stubs = _states("stack_cpu", tmp_path / "stubs.safetensors")
    with_all = _states("stack_cpu_full", tmp_path / "full.safetensors")
    assert with_stubs.keys() == with_all.keys()
    assert [len(states_TLH) for states_TLH in with_stubs.values()] == [1, 7, 64, 300]
    for sample, states_TLH in with_stubs.items():
        assert torch.equal(states_TLH.view(torch.int16), with_all[sample].view(torch.int16)), sample
