"""vLLM serves exported drafts on a GPU, for a Llama and for a Kimi-K2.5 shape.

The draft is random and accepts next to nothing; what is tested is that it is served at all, that
the target's output stays its own, and that it is handed the states that extraction stores.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
import torch

from eagle3.engine.serving import Server, ServingOptions
from tests.integration.auxiliary_states import states_at_the_draft
from tests.integration.drafts import exported
from tests.integration.engines import running_engine
from tests.integration.prompts import random_prompts
from tests.integration.tiny_models import VOCAB_SIZE, make_kimi_k25, make_llama

POINTS = (2, 4, 8)
NEW_TOKENS = 32
CHAIN = 3
# The kernels of latent attention take these dimensions and no others.
make_kimi = partial(
    make_kimi_k25,
    num_attention_heads=16,
    num_key_value_heads=16,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
)
TARGETS = [
    pytest.param(make_llama, False, id="llama"),
    pytest.param(make_kimi, True, id="kimi-k2.5"),
]
# Two tokens whose log-probabilities are so near are a tie in bfloat16.
TIE = 0.25
WORST_COSINE = 0.999


def assert_same_but_for_ties(
    own: Sequence[int], other: Sequence[int], scores: Sequence[Mapping[int, float]]
) -> None:
    for position, (ours, theirs) in enumerate(zip(own, other, strict=False)):
        if ours != theirs:
            best = scores[position]
            assert best[ours] - best.get(theirs, float("-inf")) < TIE, f"token {position}"
            return
    assert len(own) == len(other)


@pytest.mark.parametrize(("make_model", "trust_remote_code"), TARGETS)
def test_the_output_stays_the_targets(
    make_model: Callable[[Path], Path], trust_remote_code: bool, tmp_path: Path
) -> None:
    model = make_model(tmp_path / "model")
    draft = exported(model, tmp_path / "draft", capture_points=POINTS)
    prompts = random_prompts((5, 40, 200, 17), VOCAB_SIZE)

    def options(draft: Path | None) -> ServingOptions:
        return ServingOptions(
            model,
            draft,
            CHAIN,
            max_model_len=512,
            gpu_memory_utilization=0.3,
            eager=True,
            trust_remote_code=trust_remote_code,
        )

    with Server(options(None)) as server:
        alone = server.generate(prompts, max_new_tokens=NEW_TOKENS, scores=20)
    with Server(options(draft)) as server:
        drafted = server.generate(prompts, max_new_tokens=NEW_TOKENS)
        together = server.generate(prompts, max_new_tokens=NEW_TOKENS, batch=4)
    assert drafted.drafts > 0
    assert len(drafted.accepted) == CHAIN
    assert drafted.drafts >= drafted.accepted[0] >= drafted.accepted[-1]
    for served in (drafted, together):
        for own, other, scores in zip(alone.outputs, served.outputs, alone.scores, strict=True):
            assert_same_but_for_ties(own, other, scores)


@pytest.mark.parametrize(("make_model", "trust_remote_code"), TARGETS)
def test_the_draft_is_handed_the_states_of_extraction(
    make_model: Callable[[Path], Path], trust_remote_code: bool, tmp_path: Path
) -> None:
    model = make_model(tmp_path / "model")
    draft = exported(model, tmp_path / "draft", capture_points=POINTS)
    prompts = random_prompts((1, 40, 200), VOCAB_SIZE)
    with running_engine(
        model,
        POINTS,
        max_model_len=512,
        gpu_memory_utilization=0.3,
        trust_remote_code=trust_remote_code,
    ) as engine:
        extracted = engine.extract(prompts)
    handed = states_at_the_draft(model, draft, prompts)
    for ours_TLH, theirs_TLH in zip(extracted, handed, strict=True):
        assert ours_TLH.shape == theirs_TLH.shape
        cosine_TL = torch.nn.functional.cosine_similarity(
            ours_TLH.float(), theirs_TLH.float(), dim=-1
        )
        assert cosine_TL.min() > WORST_COSINE, cosine_TL.amin(dim=0).tolist()
