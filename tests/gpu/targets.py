"""The test targets of this folder, read from its BUILD file: without Bazel the same are run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUILD = Path(__file__).with_name("BUILD.bazel")
_PACKAGE = "tests/gpu"
# Bazel's own names: the seconds that a test has, and what a size means where no timeout is given.
_SECONDS = {"short": 60.0, "moderate": 300.0, "long": 900.0, "eternal": 3600.0}
_TIMEOUTS = {"small": "short", "medium": "moderate", "large": "long", "enormous": "eternal"}


@dataclass(frozen=True)
class Target:
    """A `gpu_py_test` on a GPU: its files by their paths from the root, and what it asks for."""

    label: str
    sources: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    gpus: int
    timeout_s: float

    @property
    def command(self) -> tuple[str, ...]:
        """The words after `python3`, as the test's action has them."""
        guard = ("-p", "tools.remote.gpu_guard")
        return ("tools/python/pytest_main.py", *self.sources, *guard, *self.arguments)


def read_targets(build: Path = BUILD) -> dict[str, Target]:
    """Label -> target of each `gpu_py_test` of a BUILD file, which is Python by its syntax."""
    targets: dict[str, Target] = {}

    def gpu_py_test(
        name: str,
        srcs: list[str],
        gpus: int = 1,
        min_sm: int = 80,
        args: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        size: str = "medium",
        timeout: str | None = None,
        **_: Any,
    ) -> None:
        target = Target(
            label=f"//{_PACKAGE}:{name}_gpu",
            sources=tuple(map(_path, srcs)),
            arguments=tuple(args),
            environment={
                **(env or {}),
                "EAGLE3_TEST_GPUS": str(gpus),
                "EAGLE3_TEST_MIN_SM": str(min_sm),
            },
            gpus=gpus,
            timeout_s=_SECONDS[timeout or _TIMEOUTS[size]],
        )
        targets[target.label] = target

    code = compile(build.read_text(encoding="utf-8"), str(build), "exec")
    exec(code, {}, _Words(gpu_py_test=gpu_py_test))
    return targets


def _path(label: str) -> str:
    if label.startswith("//"):
        return label[2:].replace(":", "/")
    return f"{_PACKAGE}/{label}"


class _Words(dict[str, Any]):
    """What a BUILD file may say; all but what is wanted does nothing."""

    def __missing__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None
