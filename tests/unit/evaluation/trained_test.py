"""What training teaches a draft is what drafting asks of it.

Training and drafting each have their own idea of which token and which state a row is fed, and at
which position. Where they agree, a draft that has learnt a target's answers by heart is accepted;
where they are one row apart, it is accepted no more than an untrained one.
"""

import random
from pathlib import Path

import pytest
import torch

from eagle3.draft.model import DraftModel
from eagle3.draft.target_weights import read_target_weights
from eagle3.evaluation.acceptance import Acceptance
from eagle3.evaluation.drafting import Drafter
from eagle3.evaluation.speculation import Decoding, generate
from eagle3.evaluation.target import Target
from eagle3.training.batch import PackedBatch
from eagle3.training.teacher import Teacher
from eagle3.training.unroll import UnrollOptions, unrolled_loss
from tests.unit.evaluation.tiny import POINTS, make_draft, make_llama

VOCAB_SIZE = 40
CHAIN = 3
PROMPT = 5
ANSWER = 24
UPDATES = 200
LAST_POINT = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("target") / "model", VOCAB_SIZE)


@torch.no_grad()
def answered(model: Path, prompts: list[list[int]]) -> PackedBatch:
    """The target's own answers to `prompts`, with its states; a document each."""
    target = Target(model, (*POINTS, LAST_POINT))
    documents, states = [], []
    for prompt in prompts:
        answer = generate(target, None, prompt, Decoding(CHAIN, ANSWER)).tokens
        documents.append([*prompt, *answer])
        target.start()
        states.append(target.read(documents[-1], scores=1)[1])
    length = len(documents[0])
    return PackedBatch(
        torch.tensor(documents).flatten(),
        torch.cat(states),
        (torch.arange(length) >= PROMPT).repeat(len(documents)),
        torch.arange(len(documents), dtype=torch.int32).repeat_interleave(length),
        torch.arange(length).repeat(len(documents)),
    )


def train(draft: DraftModel, model: Path, batch: PackedBatch) -> float:
    """Learns the batch by heart; returns the acceptance length that training then expects."""
    teacher = Teacher.of(read_target_weights(model), draft.vocabulary)
    options = UnrollOptions(steps=CHAIN, compute_dtype=torch.float32)
    optimizer = torch.optim.Adam((p for p in draft.parameters() if p.requires_grad), lr=3e-3)
    for _ in range(UPDATES):
        optimizer.zero_grad()
        unrolled_loss(draft, teacher, batch, options).total.backward()
        optimizer.step()
    with torch.no_grad():
        loss = unrolled_loss(draft, teacher, batch, options)
    return 1.0 + float((loss.accepted_S / loss.count_S).sum())


def length(model: Path, draft: DraftModel, prompts: list[list[int]]) -> float:
    target, drafter = Target(model, POINTS), Drafter(draft)
    total = Acceptance.none(CHAIN)
    for prompt in prompts:
        total += generate(target, drafter, prompt, Decoding(CHAIN, ANSWER)).acceptance
    return total.length


def test_a_draft_that_knows_the_answers_is_accepted(model: Path) -> None:
    source = random.Random(0)
    prompts = [[source.randrange(VOCAB_SIZE) for _ in range(PROMPT)] for _ in range(6)]
    draft = make_draft(model, VOCAB_SIZE)
    untrained = length(model, draft, prompts)
    expected = train(draft, model, answered(model, prompts))
    accepted = length(model, draft, prompts)
    assert expected > 3.0 > 1.5 > untrained
    assert accepted == pytest.approx(expected, abs=0.5)
