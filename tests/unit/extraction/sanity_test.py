"""A target that says the same token everywhere is stopped before it fills a disk."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from eagle3.errors import EngineError
from eagle3.extraction.sanity import check_choices
from eagle3.progress import Progress
from eagle3.store.sample import Sample

VOCABULARY = 32
SAMPLES = tuple(
    Sample(tuple((number + place) % VOCABULARY for place in range(20)), (0,) * 4 + (1,) * 16)
    for number in range(10)
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A checkpoint whose head gives back the unit that is largest, as a token."""
    config = {"rms_norm_eps": 1e-5}
    (tmp_path / "config.json").write_text(json.dumps({"text_config": config}))
    write(tmp_path, "language_model.lm_head.weight", torch.eye(VOCABULARY))
    return tmp_path


def write(model: Path, name: str, matrix_VH: torch.Tensor) -> None:
    tensors = {
        "language_model.model.layers.0.mlp.weight": torch.zeros(1),
        "language_model.model.norm.weight": torch.ones(VOCABULARY),
        name: matrix_VH,
    }
    save_file(tensors, model / "model.safetensors")


class Target:
    """Chooses what `choices` says after each token; captures something else, and the last point."""

    def __init__(self, choose: dict[int, int]) -> None:
        self.prompts: list[Sequence[int]] = []
        self._choose = choose

    def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        self.prompts += token_ids
        chosen = [torch.tensor([self._choose[token] for token in prompt]) for prompt in token_ids]
        last = [torch.nn.functional.one_hot(tokens_T, VOCABULARY) * 3 for tokens_T in chosen]
        return [torch.stack([states.flip(1), states], 1).bfloat16() for states in last]


RIGHT = {token: (token + 1) % VOCABULARY for token in range(VOCABULARY)}
WRONG = {token: (token + 2) % VOCABULARY for token in range(VOCABULARY)}
SAME = dict.fromkeys(range(VOCABULARY), 5)


def check(model: Path, target: Target, samples: Sequence[Sample] = SAMPLES) -> None:
    check_choices(target, model, samples, 1, Progress())


def test_a_target_that_foretells_its_data_is_told_so(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = Target(RIGHT)
    check(model, target)
    line = "sanity: the target itself would choose 100% of the data's tokens\n"
    assert capsys.readouterr().err == line
    assert target.prompts == [sample.input_ids for sample in SAMPLES[:8]]


def test_one_token_everywhere_is_no_language(model: Path) -> None:
    with pytest.raises(EngineError, match="chooses token 5 after 64 of 64 rows"):
        check(model, Target(SAME))


def test_data_of_one_token_is_no_fault_of_the_target(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(model, Target(SAME), [Sample((1, 5, 5, 5, 5, 5, 5, 5, 5), (1,) * 9)] * 2)
    assert "100%" in capsys.readouterr().err


def test_a_target_that_guesses_nothing_is_noticed(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(model, Target(WRONG))
    assert "would choose 0% of the data's tokens: is it another" in capsys.readouterr().err


def test_a_target_without_a_head_uses_its_embedding(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(model, "language_model.model.embed_tokens.weight", torch.eye(VOCABULARY))
    check(model, Target(RIGHT))
    assert "100%" in capsys.readouterr().err


def test_the_norm_comes_before_the_head(model: Path) -> None:
    tensors = {
        "model.layers.0.mlp.weight": torch.zeros(1),
        # Unit 5 is nearly switched off.
        "model.norm.weight": torch.ones(VOCABULARY).index_fill(0, torch.tensor(5), 0.001),
        "lm_head.weight": torch.eye(VOCABULARY),
    }
    save_file(tensors, model / "model.safetensors")

    class Wide(Target):
        def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
            right = super().extract(token_ids)
            for states_TLH in right:
                states_TLH[:, 1, 5] += 100
            return right

    check(model, Wide(RIGHT))
    write(model, "language_model.lm_head.weight", torch.eye(VOCABULARY))
    with pytest.raises(EngineError, match="token 5"):
        check(model, Wide(RIGHT))


@pytest.mark.parametrize("head", ["language_model.lm_head.weight_packed", "other.weight"])
def test_without_a_plain_head_nothing_is_run(
    model: Path, capsys: pytest.CaptureFixture[str], head: str
) -> None:
    write(model, head, torch.eye(VOCABULARY))
    target = Target(SAME)
    check(model, target)
    assert target.prompts == []
    assert "sanity: not checked" in capsys.readouterr().err


def test_a_head_of_whole_numbers_is_not_a_plain_one(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(model, "lm_head.weight", torch.eye(VOCABULARY).to(torch.int8))
    check(model, Target(SAME))
    assert "sanity: not checked" in capsys.readouterr().err


def test_without_the_last_point_nothing_is_run(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_choices(Target(SAME), model, SAMPLES, None, Progress())
    assert "sanity: not checked, which takes the last layer" in capsys.readouterr().err


def test_a_few_tokens_prove_nothing(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(model, Target(SAME), [Sample((1, 2, 3), (1, 1, 1))])
    assert capsys.readouterr().err == "sanity: not checked, the samples are too short\n"


def test_long_samples_are_looked_at_in_part(model: Path) -> None:
    target = Target(RIGHT)
    check(model, target, [Sample(tuple(range(32)) * 20, (1,) * 640)])
    assert [len(prompt) for prompt in target.prompts] == [256]


def test_only_supervised_tokens_are_looked_at(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    knows_the_question = RIGHT | {token: WRONG[token] for token in range(19, VOCABULARY)}
    check(model, Target(knows_the_question), [Sample(tuple(range(32)), (0,) * 20 + (1,) * 12)])
    assert "would choose 0% of the data's tokens" in capsys.readouterr().err
