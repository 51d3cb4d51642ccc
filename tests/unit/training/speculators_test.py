"""The unrolled draft against speculators 0.3.0's own, where both mean the same.

speculators teaches without the final norm and counts one token earlier, so its teacher is given
normed states here and its mask one later. Its loss is a divergence: the teacher's entropy less.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from speculators.config import SpeculatorsConfig, VerifierConfig
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
from speculators.proposals.greedy import GreedyTokenProposalConfig
from transformers import LlamaConfig

from eagle3.draft.model import DraftModel, rms_norm
from eagle3.training.batch import PackedBatch
from eagle3.training.shift import ahead, counted, fed_row
from eagle3.training.teacher import Teacher
from eagle3.training.unroll import Feed, UnrollOptions, unroll, unrolled_loss
from tests.unit.training.tiny_draft import CONFIG, draft, rows, target

STEPS = 3
VERIFIER_HEAD = "verifier_lm_head.weight"


@pytest.fixture
def model() -> DraftModel:
    return draft()


@pytest.fixture
def peer(model: DraftModel, tmp_path: Path) -> Any:
    """speculators' model with the weights of ours, its target in a folder as it wants it."""
    weights, vocabulary = target()
    names = {
        "model.embed_tokens.weight": weights.embed_tokens_VH,
        "lm_head.weight": weights.lm_head_VH,
    }
    save_file(names, tmp_path / "model.safetensors")
    sizes = {"vocab_size": CONFIG.vocab_size, "hidden_size": CONFIG.hidden_size}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **sizes}))
    layer = LlamaConfig(
        **sizes,
        intermediate_size=CONFIG.intermediate_size,
        num_hidden_layers=1,
        num_attention_heads=CONFIG.num_attention_heads,
        num_key_value_heads=CONFIG.num_key_value_heads,
        head_dim=CONFIG.head_dim,
        rms_norm_eps=CONFIG.rms_norm_eps,
        rope_theta=CONFIG.rope_theta,
    )
    layer._attn_implementation = "simple_flex_attention"
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layer,
        draft_vocab_size=CONFIG.draft_vocab_size,
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=STEPS)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=str(tmp_path), architectures=[]),
        ),
    )
    made = Eagle3DraftModel(config, vocabulary.t2d_V.clone(), vocabulary.d2t_D.clone())
    loaded = made.load_state_dict(model.state_dict(), strict=False)
    assert (loaded.missing_keys, loaded.unexpected_keys) == ([VERIFIER_HEAD], [])
    return made


def answer(peer: Any, batch: PackedBatch, feed: str) -> tuple[list[torch.Tensor], Any, Any]:
    """speculators' logits [T - 1, D] of each step, its loss and its metrics."""
    weights, _ = target()
    states_TLH = batch.hidden_states_TLH.to(torch.float32)
    normed_TH = rms_norm(states_TLH[:, 3], weights.final_norm_H, weights.rms_norm_eps)
    later_T = ahead(batch.loss_mask_T, 2)
    later_T[-2:] = False
    logits: list[torch.Tensor] = []
    hook = peer.lm_head.register_forward_hook(lambda _m, _i, out: logits.append(out[0]))
    with torch.compiler.set_stance("force_eager"):
        _, loss, metrics = peer(
            hidden_states=states_TLH[None, :-1, :3].flatten(2),
            input_ids=batch.input_ids_T[None, 1:],
            loss_mask=later_T[None, :-1],
            position_ids=batch.position_T[None, 1:],
            verifier_last_hidden_states=normed_TH[None, 1:],
            ttt_steps=STEPS,
            use_off_policy_tokens=feed == "true",
        )
    hook.remove()
    return logits, loss, metrics


def test_weights_go_both_ways(model: DraftModel, peer: Any) -> None:
    state = {name: value for name, value in peer.state_dict().items() if name != VERIFIER_HEAD}
    draft().load_state_dict(state, strict=True)
    assert {name: value.shape for name, value in state.items()} == {
        name: value.shape for name, value in model.state_dict().items()
    }


@pytest.mark.parametrize("feed", ["true", "argmax"])
def test_logits_loss_and_gradients_of_unrolled_steps(
    model: DraftModel, peer: Any, feed: Feed
) -> None:
    batch = rows([129], padding=0)
    logits, loss, metrics = answer(peer, batch, feed)
    fused_T3H = batch.hidden_states_TLH[:, :3].to(torch.float32)
    documents = (batch.document_T, batch.position_T)
    normed = unroll(model, batch.input_ids_T, fused_T3H, *documents, STEPS, feed)
    for step, (mine_TH, theirs_TD) in enumerate(zip(normed, logits, strict=True)):
        # The last rows are fed what no row of the document holds.
        rows_alike = slice(0, 129 - fed_row(step))
        mine_TD = model.lm_head(mine_TH)[rows_alike]
        torch.testing.assert_close(mine_TD, theirs_TD[rows_alike], rtol=1e-4, atol=1e-4)
    mine = unrolled_loss(
        model, Teacher.of(*target()), batch, UnrollOptions(STEPS, 1.0, feed, torch.float32)
    )
    entropy_S = teacher_entropy(batch)
    theirs_S = torch.stack([metrics[f"loss_{step}"] for step in range(STEPS)])
    torch.testing.assert_close(mine.loss_S - entropy_S, theirs_S, rtol=1e-4, atol=1e-4)
    mine.total.backward()
    loss.backward()
    for name, parameter in peer.named_parameters():
        if parameter.requires_grad:
            gradient = model.get_parameter(name).grad
            torch.testing.assert_close(gradient, parameter.grad, rtol=1e-3, atol=1e-4)


def teacher_entropy(batch: PackedBatch) -> torch.Tensor:
    """The mean over the counted rows of each step."""
    lesson = Teacher.of(*target()).teach(batch.hidden_states_TLH[:, 3].to(torch.float32), STEPS)
    p_TD = torch.softmax(lesson.logits_TD, -1)
    entropy_T = -(p_TD * p_TD.log()).sum(-1)
    counted_ST = counted(batch, STEPS)
    shifted = [entropy_T[fed_row(step) :][: counted_ST.shape[1]] for step in range(STEPS)]
    return (torch.stack(shifted) * counted_ST).sum(-1) / counted_ST.sum(-1)
