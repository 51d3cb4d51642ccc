"""The same checkpoints in transformers, and how close the engine must come to them."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    PreTrainedModel,
)

# Worst cosine over all rows to the float32 run of one checkpoint, and to its bfloat16 run, which
# errs on its own. A neighbouring layer, a norm too many or another token's row gives below 0.98.
WORST_COSINE = {"float32": 0.998, "bfloat16": 0.997}
# How much farther from float32 than transformers' own bfloat16 run the engine may be on the
# whole. Kernels that cut where they should round are twice as far.
MARGIN = 1.25


def load_reference(model: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The checkpoint in transformers."""
    return AutoModelForCausalLM.from_pretrained(
        model, dtype=dtype, attn_implementation="eager"
    ).eval()


def load_kimi_reference(model: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The language model of a Kimi-K2.5 checkpoint, which transformers does not know."""
    config = json.loads((model / "config.json").read_text())["text_config"]
    reference = DeepseekV3ForCausalLM(DeepseekV3Config(**config, attn_implementation="eager"))
    module: torch.nn.Module = reference  # transformers' own `to` is untyped
    weights = load_file(model / "model.safetensors")
    reference.load_state_dict(
        {name.removeprefix("language_model."): weight for name, weight in weights.items()}
    )
    module.to(dtype)
    return reference.eval()


@torch.no_grad()
def reference_states(
    reference: PreTrainedModel, prompts: Sequence[Sequence[int]]
) -> list[torch.Tensor]:
    """hidden_states_TLH in float32 of every capture point, 0 to the number of layers."""
    layers = reference.model.layers
    last: list[torch.Tensor] = []

    def keep_last(_module: object, _inputs: object, output: torch.Tensor) -> None:
        last.append(output[0] if isinstance(output, tuple) else output)

    # transformers gives the state after the last layer only with the final norm applied.
    hook = layers[-1].register_forward_hook(keep_last)
    states = []
    for prompt in prompts:
        last.clear()
        before_layers = reference.model(
            torch.tensor([prompt]), output_hidden_states=True, use_cache=False
        ).hidden_states[: len(layers)]
        states.append(torch.cat([*before_layers, *last]).float().transpose(0, 1))
    hook.remove()
    return states


def assert_states_match(
    states: Sequence[torch.Tensor],
    bfloat16: Sequence[torch.Tensor],
    float32: Sequence[torch.Tensor],
) -> None:
    """Each row of each capture point is the reference's, as near to float32 as its bfloat16 is.

    The arguments are hidden_states_TLH of the engine and of two references, a prompt each.
    """
    assert len(states) == len(bfloat16) == len(float32)
    for prompt, (ours, half, full) in enumerate(zip(states, bfloat16, float32, strict=True)):
        assert ours.dtype == torch.bfloat16
        assert ours.shape == half.shape == full.shape, f"prompt {prompt}"
        for name, other in (("bfloat16", half), ("float32", full)):
            cosine_TL = torch.nn.functional.cosine_similarity(ours.float(), other, dim=-1)
            assert cosine_TL.min() > WORST_COSINE[name], (
                f"prompt {prompt} against {name}: worst cosine by capture point "
                f"{[round(value, 5) for value in cosine_TL.amin(dim=0).tolist()]}"
            )
    ours_L = _distances(states, float32)
    half_L = _distances(bfloat16, float32)
    assert (ours_L <= MARGIN * half_L + 1e-6).all(), (
        f"relative distance to float32 by capture point {ours_L.tolist()}, "
        f"transformers' bfloat16 {half_L.tolist()}"
    )


def _distances(states: Sequence[torch.Tensor], reference: Sequence[torch.Tensor]) -> torch.Tensor:
    """Root mean square of the difference relative to the reference, by capture point."""
    ours_TLH, theirs_TLH = torch.cat(list(states)).float(), torch.cat(list(reference))
    difference_L = (ours_TLH - theirs_TLH).square().sum(dim=(0, 2))
    size_L = theirs_TLH.square().sum(dim=(0, 2))
    return (difference_L / size_L).sqrt()
