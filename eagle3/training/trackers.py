"""Metrics to TensorBoard, W&B or trackio, which the stacks do not bring."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from eagle3.errors import InputError

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


def open_tracker(name: str, out: Path, config: Mapping[str, Any]) -> Tracker:
    """The tracker that `--track` names. Raises InputError where it does not start."""
    if name == "none":
        return NoTracker()
    check_tracker(name)
    try:
        if name == "tensorboard":
            return _TensorBoard(out)
        return _Service(_PACKAGES[name], out, config)
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
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    remedy = _REMEDIES.get(name, "see to that")
    return InputError(
        f"--track {name} did not start ({reason}): {remedy}, or leave --track out; metrics.jsonl "
        "is written in any case"
    )


def scalars(fields: Mapping[str, Any]) -> dict[str, float]:
    """`kind/name` -> value, with a number behind the name for each unrolled step."""
    flat: dict[str, float] = {}
    for name, value in fields.items():
        if isinstance(value, list):
            flat |= {f"{fields['kind']}/{name}/{step}": each for step, each in enumerate(value)}
        elif name not in ("kind", "step"):
            flat[f"{fields['kind']}/{name}"] = value
    return flat
