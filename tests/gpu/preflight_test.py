"""Preflight on a real machine: all is well there, and a worse machine would be told."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from eagle3.checks.devices import check_devices
from eagle3.checks.finding import Finding
from eagle3.checks.kernels import check_kernels
from eagle3.checks.machine import Machine, read_machine
from eagle3.checks.memory import check_memory
from eagle3.engine.options import EngineOptions
from tests.gpu.reference_plan import SituationWithoutWeights
from tests.gpu.reference_target import captured_layers, write_reference_target

LAYERS = 8


@pytest.fixture(scope="module")
def machine() -> Machine:
    return read_machine()


def situation(folder: Path, machine: Machine, layers: int = LAYERS) -> SituationWithoutWeights:
    """A target of Kimi-K2.5's width with INT4 experts; nothing but its configuration is there."""
    target = write_reference_target(folder, layers, tiny=False)
    points = tuple(layer + 1 for layer in captured_layers(layers))
    options = EngineOptions(target, points, dummy_weights=True)
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    return SituationWithoutWeights(options, config, machine)


def said(findings: Iterable[Finding], verdict: str) -> list[str]:
    lines = []
    for finding in findings:
        print(finding.verdict, finding)
        if finding.verdict == verdict:
            lines.append(str(finding))
    return lines


def test_this_machine_runs_eight_layers(tmp_path: Path, machine: Machine) -> None:
    here = situation(tmp_path, machine)
    for check in (check_devices, check_kernels, check_memory):
        assert said(check(here), "fail") == []


def test_the_kernels_of_every_library_are_told(tmp_path: Path, machine: Machine) -> None:
    lines = said(check_kernels(situation(tmp_path, machine)), "ok")
    assert {line.split(":")[1].strip() for line in lines} == {name for name, _ in machine.libraries}


def test_an_older_driver_would_be_told(tmp_path: Path, machine: Machine) -> None:
    older = dataclasses.replace(machine, driver="570.86", driver_cuda=(12, 8))
    [line] = [
        line
        for line in said(check_kernels(situation(tmp_path, older)), "fail")
        if "vllm/_moe_C" in line
    ]
    assert "which the driver 570.86 (CUDA 12.8) does not know" in line


def test_too_deep_a_target_would_be_told(tmp_path: Path, machine: Machine) -> None:
    lines = said(check_memory(situation(tmp_path, machine, layers=61)), "fail")
    assert "of weights" in lines[0]


def test_a_busy_gpu_would_be_told(tmp_path: Path, machine: Machine) -> None:
    busy = dataclasses.replace(machine.gpus[0], free=machine.gpus[0].memory // 10)
    lines = said(
        check_memory(situation(tmp_path, dataclasses.replace(machine, gpus=(busy,)))), "fail"
    )
    assert "10% of a GPU is free" in lines[0]
