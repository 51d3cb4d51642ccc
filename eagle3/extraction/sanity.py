"""Whether the loaded target means something: which tokens it would choose, in a few samples.

Kernels that do not suit a GPU give states of the usual size that mean nothing. Public reports tell
of 4-bit experts whose answers are one token again and again. The last capture point, the final norm
and the head of the checkpoint give the target's own greedy choice after every token of a prompt; so
one prefill of the samples shows it, by the very steps that the extraction is made of.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open

from eagle3.checks.checkpoint_files import CheckpointFiles, read_checkpoint_files
from eagle3.errors import EngineError
from eagle3.progress import Progress
from eagle3.store.sample import Sample

_SAMPLES = 8
_TOKENS_PER_SAMPLE = 256
_PLACES_PER_SAMPLE = 8
# Of 64 choices: language has no token that is every second one.
_DEGENERATE_SHARE = 0.5
# A target that has learned its language guesses far more, whoever wrote the text.
_STRANGE_AGREEMENT = 0.02


class Extractor(Protocol):
    """What this needs of the engine."""

    def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]: ...


@dataclass(frozen=True)
class Head:
    """What makes logits of the last capture point: RMS norm [H], then a matrix [V, H]."""

    norm: torch.Tensor
    epsilon: float
    matrix: torch.Tensor

    def choose(self, hidden_states_NH: torch.Tensor) -> list[int]:
        """The token with the highest logit after each row."""
        wide_NH = hidden_states_NH.float()
        scale_N1 = torch.rsqrt(wide_NH.square().mean(dim=1, keepdim=True) + self.epsilon)
        normed_NH = (wide_NH * scale_N1).to(self.matrix.dtype) * self.norm
        return (normed_NH @ self.matrix.T).argmax(dim=1).tolist()


def check_choices(
    engine: Extractor,
    model: Path,
    samples: Sequence[Sample],
    last_point: int | None,
    progress: Progress,
) -> None:
    """Runs a few of `samples`, and raises EngineError where the target's choices are degenerate.

    `last_point` is the place of the point after all layers among those that `engine` captures.
    Without it, or without a plain head in the checkpoint, nothing is run, which is said.
    """
    head = None if last_point is None else read_head(model, read_checkpoint_files(model))
    if head is None:
        progress.say("sanity: not checked, which takes the last layer and a plain head")
        return
    chosen_from = [
        Sample(sample.input_ids[:_TOKENS_PER_SAMPLE], sample.loss_mask[:_TOKENS_PER_SAMPLE])
        for sample in samples[:_SAMPLES]
    ]
    states = engine.extract([sample.input_ids for sample in chosen_from])
    choices: list[int] = []
    following: list[int] = []
    for sample, hidden_states_TLH in zip(chosen_from, states, strict=True):
        places = _places(sample)
        choices += head.choose(hidden_states_TLH[places, last_point]) if places else []
        following += [sample.input_ids[place + 1] for place in places]
    _judge(choices, following, progress)


def _places(sample: Sample) -> list[int]:
    """Rows, evenly spaced, after which a supervised token follows."""
    possible = [place for place in range(len(sample.input_ids) - 1) if sample.loss_mask[place + 1]]
    step = max(1, len(possible) // _PLACES_PER_SAMPLE)
    return possible[::step][:_PLACES_PER_SAMPLE]


def _judge(choices: list[int], following: list[int], progress: Progress) -> None:
    if len(choices) < _PLACES_PER_SAMPLE:
        progress.say("sanity: not checked, the samples are too short")
        return
    [(token, count)] = Counter(choices).most_common(1)
    # Data may hold little else than one token.
    expected = following.count(token)
    if count > _DEGENERATE_SHARE * len(choices) and expected <= count / 2:
        raise EngineError(
            f"the target chooses token {token} after {count} of {len(choices)} rows: its states "
            "mean nothing; see whether its kernels suit this device, or go on with --no-preflight"
        )
    right = sum(choice == token for choice, token in zip(choices, following, strict=True))
    line = f"sanity: the target itself would choose {right / len(choices):.0%} of the data's tokens"
    if right < _STRANGE_AGREEMENT * len(choices):
        line += ": is it another target's data, or a target without training?"
    progress.say(line)


def read_head(model: Path, checkpoint: CheckpointFiles) -> Head | None:
    """Final norm and head, None where they are not plain tensors of floating point.

    A target without a head of its own uses the embedding.
    """
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    epsilon = (config.get("text_config") or config).get("rms_norm_eps")
    decoder = max(checkpoint.layers, key=lambda at: len(checkpoint.layers[at]), default="")
    stem = decoder.rpartition(".")[0]
    heads = [name for name in checkpoint.tensors if name.endswith("lm_head.weight")]
    names = (f"{stem}.norm.weight", *(heads or [f"{stem}.embed_tokens.weight"]))
    if epsilon is None or not checkpoint.tensors.keys() >= set(names):
        return None
    norm_H, head_VH = (_read(checkpoint.tensors[name], name) for name in names[:2])
    if not norm_H.is_floating_point() or not head_VH.is_floating_point():
        return None
    return Head(norm_H.bfloat16(), float(epsilon), head_VH.bfloat16())


def _read(path: Path, name: str) -> torch.Tensor:
    with safe_open(path, "pt") as file:
        return file.get_tensor(name)
