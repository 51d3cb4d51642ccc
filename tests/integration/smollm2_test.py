"""SmolLM2-135M-Instruct, the embedded default target: real weights, real text."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from runfiles import Runfiles
from transformers import AutoTokenizer

from eagle3.engine.capture_points import default_capture_points
from eagle3.engine.engine import Engine
from tests.integration.engines import running_engine
from tests.integration.next_token import extract_with_next_tokens
from tests.integration.reference import assert_states_match, load_reference, reference_states

QUESTIONS = (
    "What is the capital of France?",
    "Name three primary colours.",
    "Write one sentence about the sea.",
    "How many legs does a spider have?",
    "Explain in a few words why the sky is blue.",
    "Translate 'good morning' into Spanish.",
)


@pytest.fixture(scope="module")
def model() -> Path:
    runfiles = Runfiles.Create()
    assert runfiles is not None, "run this test with Bazel"
    location = runfiles.Rlocation("eagle3_training/third_party/models/smollm2")
    assert location is not None
    return Path(location)


@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[Engine]:
    with running_engine(model, default_capture_points(30), max_tokens_per_step=512) as engine:
        yield engine


@pytest.fixture(scope="module")
def prompts(model: Path) -> list[list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(model)
    return [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True
        )
        for question in QUESTIONS
    ]


def test_capture_points_are_the_references(
    engine: Engine, model: Path, prompts: list[list[int]]
) -> None:
    points = list(default_capture_points(30))
    bfloat16, float32 = (
        [states[:, points] for states in reference_states(load_reference(model, dtype), prompts)]
        for dtype in (torch.bfloat16, torch.float32)
    )
    assert_states_match(engine.extract(prompts), bfloat16, float32)


def test_last_point_gives_the_targets_next_token(
    engine: Engine, model: Path, prompts: list[list[int]]
) -> None:
    # Every beginning of every prompt asks for a next token.
    beginnings = [prompt[:length] for prompt in prompts for length in range(4, len(prompt), 3)]
    states, next_tokens = extract_with_next_tokens(engine, beginnings)
    reference = load_reference(model, torch.bfloat16)
    last_BH = torch.stack([states_TLH[-1, -1] for states_TLH in states])
    with torch.no_grad():
        logits_BV = reference.lm_head(reference.model.norm(last_BH))
    chosen_B = logits_BV.gather(1, torch.tensor(next_tokens)[:, None])[:, 0]
    # Logits are bfloat16, where the two best of 49,152 can be equal.
    assert (chosen_B == logits_BV.amax(dim=-1)).all()
