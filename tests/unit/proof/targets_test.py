"""What runs without Bazel is what Bazel runs."""

from pathlib import Path

import pytest

from tests.contract.runfile import runfile
from tests.gpu.groups import groups
from tests.gpu.targets import read_targets

TEXT = """
load("//tools/remote:gpu_test.bzl", "gpu_py_test")

package(default_visibility = ["//visibility:public"])

py_library(name = "gpu", srcs = glob(["*.py"]))

gpu_py_test(
    name = "one",
    srcs = ["one_test.py", "//tests/integration:two_test.py"],
    args = ["-k", "not slow"],
    env = {"A": "1"},
    gpus = 2,
    min_sm = 90,
    size = "large",
    deps = [":gpu"],
)
"""


def test_sources_arguments_and_environment_are_the_targets(tmp_path: Path) -> None:
    build = tmp_path / "BUILD.bazel"
    build.write_text(TEXT)
    [target] = read_targets(build).values()
    assert target.label == "//tests/gpu:one_gpu"
    assert target.gpus == 2
    assert target.timeout_s == 900
    assert target.environment == {"A": "1", "EAGLE3_TEST_GPUS": "2", "EAGLE3_TEST_MIN_SM": "90"}
    assert target.command == (
        "tools/python/pytest_main.py",
        "tests/gpu/one_test.py",
        "tests/integration/two_test.py",
        *("-p", "tools.remote.gpu_guard", "-k", "not slow"),
    )


@pytest.mark.parametrize(
    ("attributes", "seconds"),
    [("", 300), ('size = "small",', 60), ('size = "medium", timeout = "long",', 900)],
)
def test_a_test_has_the_time_that_bazel_gives_it(
    tmp_path: Path, attributes: str, seconds: float
) -> None:
    build = tmp_path / "BUILD.bazel"
    build.write_text(TEXT.replace('size = "large",', attributes))
    [target] = read_targets(build).values()
    assert target.timeout_s == seconds


def test_a_test_that_hangs_leaves_time_to_what_follows_it() -> None:
    targets = read_targets(runfile("tests/gpu/BUILD.bazel"))
    for group in groups().values():
        for step in group.steps:
            if step.name in targets:
                assert step.timeout_s == targets[step.name].timeout_s


def test_every_target_of_the_folder_is_in_a_group_but_those_for_eight_gpus() -> None:
    targets = read_targets(runfile("tests/gpu/BUILD.bazel"))
    run = {step.name for group in groups().values() for step in group.steps}
    assert {label for label, target in targets.items() if target.gpus <= 2} <= run
    assert "//tests/gpu:reference_at_full_depth_gpu" in targets.keys() - run


def test_a_target_that_no_group_names_is_among_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = tmp_path / "BUILD.bazel"
    build.write_text(runfile("tests/gpu/BUILD.bazel").read_text() + TEXT)
    targets = read_targets(build)
    monkeypatch.setattr("tests.gpu.groups.read_targets", lambda: targets)
    others = groups()["others"]
    assert "//tests/gpu:one_gpu" in [step.name for step in others.steps]
    assert others.gpus == 2


def test_a_group_has_the_gpus_that_its_targets_ask_for() -> None:
    targets = read_targets(runfile("tests/gpu/BUILD.bazel"))
    for group in groups().values():
        for step in group.steps:
            if step.name in targets:
                assert targets[step.name].gpus <= group.gpus
