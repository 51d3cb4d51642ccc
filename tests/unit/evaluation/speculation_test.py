"""With any draft the output is the target's own, greedy and sampled."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from eagle3.errors import InputError
from eagle3.evaluation.drafting import Drafter
from eagle3.evaluation.speculation import Decoding, generate
from eagle3.evaluation.target import Target
from tests.unit.evaluation.tiny import POINTS, make_draft, make_llama

VOCAB_SIZE = 40
PROMPT = (3, 17, 5, 9, 30)
NEW_TOKENS = 40
SAMPLES = 600
# Chi-square with 15 degrees of freedom is above this once in 10,000 times.
CHI_SQUARE = 44.3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("target") / "model", VOCAB_SIZE)


@pytest.fixture(scope="module")
def target(model: Path) -> Target:
    return Target(model, POINTS)


@pytest.fixture(scope="module")
def greedy(model: Path) -> tuple[int, ...]:
    """What transformers itself generates."""
    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    output = reference.generate(
        torch.tensor([PROMPT]),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return tuple(output[0, len(PROMPT) :].tolist())


def test_the_target_alone_is_transformers(target: Target, greedy: tuple[int, ...]) -> None:
    generation = generate(target, None, PROMPT, Decoding(5, NEW_TOKENS))
    assert generation.tokens == greedy
    assert generation.acceptance.length == 1.0


@torch.inference_mode()
def test_the_states_are_those_after_so_many_layers(model: Path, target: Target) -> None:
    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    states = reference(torch.tensor([PROMPT]), output_hidden_states=True).hidden_states
    target.start()
    _, states_T3H = target.read(PROMPT, scores=1)
    for place, point in enumerate(POINTS):
        torch.testing.assert_close(states_T3H[:, place], states[point][0])


@pytest.mark.parametrize("speculative_tokens", [1, 2, 5])
@pytest.mark.parametrize("draft_vocab_size", [VOCAB_SIZE, 10])
def test_greedy_output_is_the_targets_with_any_draft(
    draft_vocab_size: int,
    speculative_tokens: int,
    model: Path,
    target: Target,
    greedy: tuple[int, ...],
) -> None:
    for seed in range(4):
        drafter = Drafter(make_draft(model, draft_vocab_size, seed))
        generation = generate(target, drafter, PROMPT, Decoding(speculative_tokens, NEW_TOKENS))
        assert generation.tokens == greedy


class Oracle(Drafter):
    """Knows the target's answer, and errs at every third token."""

    def __init__(self, model: Path, answer: tuple[int, ...]) -> None:
        super().__init__(make_draft(model, VOCAB_SIZE))
        self.answer = answer
        self.rows = 0

    def draft(self, next_tokens_T: torch.Tensor, fused_T3H: torch.Tensor, count: int) -> list[int]:
        assert len(next_tokens_T) == len(fused_T3H)
        self.rows += len(next_tokens_T)
        done = self.rows - len(PROMPT) + 1
        chain = [
            token if position % 3 else (token + 1) % VOCAB_SIZE
            for position, token in enumerate(self.answer[done : done + count], done)
        ]
        return chain + [0] * (count - len(chain))


def test_what_is_accepted_is_counted(model: Path, target: Target, greedy: tuple[int, ...]) -> None:
    # Tokens 3, 6, 9 ... are drafted wrong: each step accepts two and adds the third itself.
    generation = generate(target, Oracle(model, greedy), PROMPT, Decoding(5, 31))
    assert generation.tokens == greedy[:31]
    assert generation.acceptance.steps == (0, 0, 10, 0, 0, 0)


class Recorder(Oracle):
    """Keeps what it is given."""

    def __init__(self, model: Path, answer: tuple[int, ...]) -> None:
        super().__init__(model, answer)
        self.tokens: list[int] = []
        self.states: list[torch.Tensor] = []

    def draft(self, next_tokens_T: torch.Tensor, fused_T3H: torch.Tensor, count: int) -> list[int]:
        self.tokens += next_tokens_T.tolist()
        self.states.append(fused_T3H)
        return super().draft(next_tokens_T, fused_T3H, count)


@torch.inference_mode()
def test_the_draft_is_given_each_row_with_the_token_after_it(
    model: Path, target: Target, greedy: tuple[int, ...]
) -> None:
    recorder = Recorder(model, greedy)
    generate(target, recorder, PROMPT, Decoding(5, 31))
    whole = [*PROMPT, *greedy]
    assert len(recorder.tokens) > 20
    assert recorder.tokens == whole[1 : len(recorder.tokens) + 1]
    target.start()
    _, states_T3H = target.read(whole[: len(recorder.tokens)], scores=1)
    torch.testing.assert_close(torch.cat(recorder.states), states_T3H, rtol=1e-4, atol=1e-4)


def test_an_answer_ends_with_its_stop_token(
    model: Path, target: Target, greedy: tuple[int, ...]
) -> None:
    stop = greedy[7]
    end = greedy.index(stop) + 1
    decoding = Decoding(5, NEW_TOKENS, stop_ids=frozenset({stop}))
    for drafter in (None, Oracle(model, greedy)):
        assert generate(target, drafter, PROMPT, decoding).tokens == greedy[:end]


@torch.no_grad()
def test_sampled_output_is_distributed_as_the_targets(tmp_path: Path) -> None:
    vocab_size = 4
    folder = make_llama(tmp_path / "model", vocab_size)
    target = Target(folder, POINTS)
    drafter = Drafter(make_draft(folder, 3))
    prompt = (1, 3)
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def scores_after(*tokens: int) -> torch.Tensor:
        return reference(torch.tensor([[*prompt, *tokens]])).logits[0, -1].softmax(dim=-1)

    expected = scores_after()[:, None] * torch.stack([scores_after(a) for a in range(vocab_size)])
    counts = torch.zeros(vocab_size, vocab_size)
    for seed in range(SAMPLES):
        decoding = Decoding(2, 2, temperature=1.0, seed=seed)
        counts[generate(target, drafter, prompt, decoding).tokens] += 1
    chi_square = ((counts - SAMPLES * expected).square() / (SAMPLES * expected)).sum()
    assert chi_square < CHI_SQUARE


@pytest.mark.parametrize("error", [ImportError("install compressed-tensors"), KeyError("kimi")])
def test_a_target_that_transformers_cannot_run_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", fail)
    with pytest.raises(InputError, match=r"cannot run the target in .*: take --backend vllm"):
        Target(tmp_path, POINTS)
