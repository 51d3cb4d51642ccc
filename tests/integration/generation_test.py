"""SmolLM2 writes: its own words, the same ones again, and a mask of exactly those."""

from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path

import pytest
from runfiles import Runfiles

from eagle3.chat.chat_template import ChatTemplate, load_chat_template
from eagle3.chat.serving import Served
from eagle3.engine.generation import GenerationEngine, GenerationOptions, Sampling
from eagle3.errors import InputError
from eagle3.generation.dialogue import DialogueRules, Finished
from eagle3.generation.hold import hold
from eagle3.generation.journal import Journal
from eagle3.generation.regenerate import AskedRows
from eagle3.generation.self_instruct import InventedRows
from tests.integration.engines import worker_processes

INVENTED = 12
ROWS = (
    '{"messages": [{"role": "user", "content": "What is the capital of France?"}, '
    '{"role": "assistant", "content": "Foreign words."}, '
    '{"role": "user", "content": "And of Italy?"}]}\n'
    '{"prompt": "Name three primary colours."}\n'
)


@pytest.fixture(scope="module")
def model() -> Path:
    runfiles = Runfiles.Create()
    assert runfiles is not None, "run this test with Bazel"
    location = runfiles.Rlocation("eagle3_training/third_party/models/smollm2")
    assert location is not None
    return Path(location)


@pytest.fixture(scope="module")
def template(model: Path) -> ChatTemplate:
    return load_chat_template(model)


@pytest.fixture(scope="module")
def rules(template: ChatTemplate) -> DialogueRules:
    # The most probable answers are sensible ones; the questions are drawn all the same.
    sampling = Sampling(0.0, 1.0, 0, 0.0, 1.0, tuple(sorted(template.end_of_turn_ids)))
    served = Served(template, thinking=False)
    return DialogueRules(served, sampling, 32, 512, "keep", seed=0, max_question_tokens=40)


@pytest.fixture(scope="module")
def runs(
    model: Path, rules: DialogueRules, tmp_path_factory: pytest.TempPathFactory
) -> list[list[Finished]]:
    """What the target wrote in each of two processes' lives: two rows and a dozen of its own."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "d.jsonl").write_text(ROWS)
    runs = []
    for number in range(2):
        asked = AskedRows(folder / "d.jsonl", None, None, rules).rows()
        invented = islice(InventedRows(INVENTED, None, 1, rules).rows(), INVENTED)
        with (
            GenerationEngine(GenerationOptions(model, max_model_len=512)) as engine,
            Journal(folder / f"{number}.jsonl", {}) as journal,
        ):
            held = hold(chain(asked, invented), engine, journal, lambda: 99, lambda tokens: None)
            runs.append([finished for _, finished in held if finished is not None])
        assert worker_processes() == []
    return runs


def test_the_same_seed_gives_the_same_tokens(runs: list[list[Finished]]) -> None:
    assert runs[0] == runs[1]
    assert len(runs[0]) == 2 + INVENTED


def test_answers_are_the_targets_own_and_sensible(
    runs: list[list[Finished]], rules: DialogueRules
) -> None:
    text = rules.served.decode(runs[0][0].samples[0].input_ids)
    assert "Paris" in text
    assert "Foreign words" not in text


def test_the_mask_is_each_answer_with_its_end(
    runs: list[list[Finished]], rules: DialogueRules
) -> None:
    [sample] = runs[0][0].samples
    begins = spans(sample.loss_mask)
    assert len(begins) == runs[0][0].answers == 2
    header = rules.served.template.encode("<|im_start|>assistant\n")
    ids = list(sample.input_ids)
    for begin, _ in begins:
        assert ids[begin - len(header) : begin] == header
    first, second = begins
    assert ids[first[1] - 1] in rules.sampling.stop_ids
    # What stands between the answers is what a server would have rendered.
    assert rules.served.decode(ids[first[1] : second[0]]) == (
        "\n<|im_start|>user\nAnd of Italy?<|im_end|>\n<|im_start|>assistant\n"
    )


def spans(mask: Sequence[int]) -> list[tuple[int, int]]:
    closed = [*mask, 0]
    borders = [place for place in range(1, len(closed)) if closed[place] != closed[place - 1]]
    return list(zip(borders[::2], borders[1::2], strict=True))


def test_the_target_asks_and_answers(runs: list[list[Finished]], rules: DialogueRules) -> None:
    usable = [finished for finished in runs[0][2:] if finished.samples]
    assert usable
    for finished in usable:
        text = rules.served.decode(finished.samples[0].input_ids)
        assert f"<|im_start|>user\n{finished.question}<|im_end|>\n<|im_start|>assistant\n" in text
    assert len({finished.question for finished in usable}) == len(usable)


def test_a_length_that_the_target_does_not_have_is_refused(model: Path) -> None:
    with pytest.raises(InputError, match="more than the 8,192 positions of the target"):
        GenerationEngine(GenerationOptions(model, max_model_len=9000))
