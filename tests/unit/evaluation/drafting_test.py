"""A chain from kept keys and values is the chain that a run over everything gives."""

import pytest
import torch

from eagle3.draft.model import DraftModel
from eagle3.evaluation.drafting import Drafter
from tests.unit.evaluation.tiny import make_draft, make_llama

VOCAB_SIZE = 40
ROWS = 9
CHAIN = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> DraftModel:
    model = make_draft(make_llama(tmp_path_factory.mktemp("target") / "model", VOCAB_SIZE), 20)
    with torch.no_grad():
        # Loud attention: what a row sees must decide what is proposed.
        for projection in ("q_proj", "k_proj", "o_proj"):
            getattr(model.layers[0].self_attn, projection).weight.mul_(10.0)
    return model


def attend_to(sees_TT: torch.Tensor):
    """Attention under a mask, head by head."""

    def attend(q_TND: torch.Tensor, k_TGD: torch.Tensor, v_TGD: torch.Tensor) -> torch.Tensor:
        share = q_TND.shape[1] // k_TGD.shape[1]
        keys, values = k_TGD.repeat_interleave(share, 1), v_TGD.repeat_interleave(share, 1)
        scores_NTT = torch.einsum("tnd,snd->nts", q_TND, keys) * q_TND.shape[-1] ** -0.5
        weights_NTT = scores_NTT.masked_fill(~sees_TT, float("-inf")).softmax(dim=-1)
        return torch.einsum("nts,snd->tnd", weights_NTT, values)

    return attend


@torch.no_grad()
def chain_from_scratch(
    model: DraftModel, tokens_T: torch.Tensor, fused_T3H: torch.Tensor
) -> list[int]:
    """Every token by a new run over all rows: those of the target, then the draft's own."""
    chain: list[int] = []
    states_TH = model.fuse(fused_T3H)
    while len(chain) < CHAIN:
        rows = len(states_TH)
        causal_TT = torch.ones(rows, rows, dtype=torch.bool).tril()
        outputs_TH = model(tokens_T, states_TH, torch.arange(rows), attend_to(causal_TT))
        chain.append(int(model.target_ids(model.logits(outputs_TH[-1:]).argmax(dim=-1))))
        tokens_T = torch.cat((tokens_T, torch.tensor(chain[-1:])))
        states_TH = torch.cat((states_TH, outputs_TH[-1:]))
    return chain


@torch.no_grad()
def test_rows_in_any_portions_give_the_same_chains(model: DraftModel) -> None:
    generator = torch.Generator().manual_seed(3)
    tokens_T = torch.randint(VOCAB_SIZE, (ROWS,), generator=generator)
    fused_T3H = torch.randn(ROWS, 3, 32, generator=generator)
    drafter = Drafter(model)
    begin = 0
    chains = []
    for end in (5, 6, ROWS):
        chains.append(drafter.draft(tokens_T[begin:end], fused_T3H[begin:end], CHAIN))
        assert chains[-1] == chain_from_scratch(model, tokens_T[:end], fused_T3H[:end])
        begin = end
    assert len({tuple(chain) for chain in chains}) == 3
    drafter.start()
    assert drafter.draft(tokens_T, fused_T3H, CHAIN) == chains[-1]


@torch.no_grad()
def test_only_tokens_of_the_drafts_vocabulary_are_proposed(model: DraftModel) -> None:
    known = set(model.t2d.nonzero().flatten().tolist())
    generator = torch.Generator().manual_seed(4)
    for _ in range(10):
        tokens_T = torch.randint(VOCAB_SIZE, (3,), generator=generator)
        chain = Drafter(model).draft(tokens_T, torch.randn(3, 3, 32, generator=generator), CHAIN)
        assert known.issuperset(chain)
