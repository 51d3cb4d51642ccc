"""Metrics to TensorBoard, W&B or trackio, which the stacks do not bring."""

import importlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from eagle3.errors import InputError
from eagle3.progress import Progress

_PROJECT = "eagle3"
_PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "trackio": "trackio"}
_REMEDIES = {"wandb": "log in with `wandb login`, set WANDB_MODE=offline where there is no network"}


class Tracker(Protocol):
    """Takes what metrics.jsonl takes."""

    def log(self, fields: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class NoTracker:
    def log(self, fields: Mapping[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


class _TensorBoard:
    def __init__(self, out: Path) -> None:
        # Fails without the package, which torch only writes for.
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(out / "tensorboard"))

    def log(self, fields: Mapping[str, Any]) -> None:
        for name, value in scalars(fields).items():
            self._writer.add_scalar(name, value, fields["step"])

    def close(self) -> None:
        self._writer.close()


class _Service:
    """W&B, or trackio, which has the same functions."""

    def __init__(self, package: str, out: Path, config: Mapping[str, Any]) -> None:
        self._module = importlib.import_module(package)
        self._module.init(project=_PROJECT, name=out.name, config=dict(config))

    def log(self, fields: Mapping[str, Any]) -> None:
        self._module.log(scalars(fields), step=fields["step"])

    def close(self) -> None:
        self._module.finish()


class _Expendable:
    """A tracker that is left out of a run once it fails: days of training must not hang on it."""

    def __init__(self, name: str, tracker: Tracker, progress: Progress) -> None:
        self._name = name
        self._tracker = tracker
        self._progress = progress

    def log(self, fields: Mapping[str, Any]) -> None:
        with self._forgiven():
            self._tracker.log(fields)

    def close(self) -> None:
        with self._forgiven():
            self._tracker.close()

    @contextmanager
    def _forgiven(self) -> Generator[None]:
        try:
            yield
        # Each has errors of its own: a network, a disk, a service that is gone.
        except Exception as error:
            self._tracker = NoTracker()
            self._progress.say(
                f"warning: --track {self._name} failed ({_reason(error)}) and gets nothing more; "
                "metrics.jsonl has all"
            )


def open_tracker(name: str, out: Path, config: Mapping[str, Any], progress: Progress) -> Tracker:
    """The tracker that `--track` names. Raises InputError where it does not start.

    Where it fails later, it is left out, and `progress` says so.
    """
    if name == "none":
        return NoTracker()
    check_tracker(name)
    try:
        if name == "tensorboard":
            return _Expendable(name, _TensorBoard(out), progress)
        return _Expendable(name, _Service(_PACKAGES[name], out, config), progress)
    # Each has errors of its own: no key, no network, a folder that cannot be written.
    except Exception as error:
        raise _did_not_start(name, error) from error


def check_tracker(name: str) -> None:
    """Raises InputError where the package of tracker `name` cannot be imported."""
    package = _PACKAGES.get(name)
    if package is None:
        return
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise InputError(
            f"--track {name} needs the package {package}, which this stack does not pin: add it to "
            "third_party/<stack>/requirements.in and renew the lock; metrics.jsonl is written in "
            "any case"
        ) from error
    except Exception as error:
        raise _did_not_start(name, error) from error


def _did_not_start(name: str, error: Exception) -> InputError:
    remedy = _REMEDIES.get(name, "see to that")
    return InputError(
        f"--track {name} did not start ({_reason(error)}): {remedy}, or leave --track out; "
        "metrics.jsonl is written in any case"
    )


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def scalars(fields: Mapping[str, Any]) -> dict[str, float]:
    """`kind/name` -> value, with a number behind the name for each unrolled step."""
    flat: dict[str, float] = {}
    for name, value in fields.items():
        if isinstance(value, list):
            flat |= {f"{fields['kind']}/{name}/{step}": each for step, each in enumerate(value)}
        elif name not in ("kind", "step"):
            flat[f"{fields['kind']}/{name}"] = value
    return flat
