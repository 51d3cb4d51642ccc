"""SmolLM2 writes: its own words, the same ones again, and a mask of exactly those."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from runfiles import Runfiles

from eagle3.chat.chat_template import ChatTemplate, load_chat_template
from eagle3.chat.conversation import Message
from eagle3.chat.serving import Served
from eagle3.engine.generation import GenerationEngine, GenerationOptions, Sampling
from eagle3.errors import InputError
from eagle3.generation.dialogue import DialogueRules, Finished
from eagle3.generation.hold import hold
from eagle3.generation.journal import Journal
from eagle3.generation.regenerate import AskedRows
from eagle3.generation.self_instruct import InventedRows
from tests.integration.engines import worker_processes

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
def engine(model: Path) -> Iterator[GenerationEngine]:
    with GenerationEngine(GenerationOptions(model, max_model_len=512)) as engine:
        yield engine
    assert worker_processes() == []


@pytest.fixture
def rules(template: ChatTemplate) -> DialogueRules:
    sampling = Sampling(0.7, 0.95, 0, 0.0, 1.0, tuple(sorted(template.end_of_turn_ids)))
    return DialogueRules(Served(template, thinking=False), sampling, 48, 512, "keep", seed=0)


def write(rows: AskedRows | InventedRows, engine: GenerationEngine, folder: Path) -> list[Finished]:
    """What comes of `rows`, or of the first two that have a sample."""
    found = []
    with Journal(folder / "journal.jsonl", {}) as journal:
        for _, finished in hold(rows.rows(), engine, journal, lambda: 4, lambda tokens: None):
            assert finished is not None
            found += [finished] if finished.samples else []
            if len(found) == 2:
                return found
    return found


def test_answers_are_sensible_and_the_same_again(
    engine: GenerationEngine, rules: DialogueRules, tmp_path: Path
) -> None:
    data = tmp_path / "d.jsonl"
    data.write_text(ROWS)
    runs = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        asked = AskedRows(data, None, None, rules)
        runs.append(write(asked, engine, tmp_path / str(number)))
    assert runs[0] == runs[1]
    text = rules.served.decode(runs[0][0].samples[0].input_ids)
    assert "Paris" in text
    assert "Foreign words" not in text
    assert text.count("<|im_start|>assistant\n") == 2


def test_the_mask_is_what_the_template_gives_for_the_same_text(
    engine: GenerationEngine, rules: DialogueRules, tmp_path: Path
) -> None:
    data = tmp_path / "d.jsonl"
    data.write_text(ROWS)
    [sample] = write(AskedRows(data, None, None, rules), engine, tmp_path)[0].samples
    begins = spans(sample.loss_mask)
    assert len(begins) == 2
    header = rules.served.template.encode("<|im_start|>assistant\n")
    for begin, end in begins:
        ids = list(sample.input_ids)
        assert ids[begin - len(header) : begin] == header
        assert ids[end - 1] in rules.sampling.stop_ids
        assert not set(ids[begin : end - 1]).intersection(rules.sampling.stop_ids)
    # What stands between the answers is what a server would have rendered.
    between = sample.input_ids[begins[0][1] : begins[1][0]]
    assert rules.served.decode(between) == (
        "\n<|im_start|>user\nAnd of Italy?<|im_end|>\n<|im_start|>assistant\n"
    )


def spans(mask: Sequence[int]) -> list[tuple[int, int]]:
    borders = [place for place in range(1, len(mask) + 1) if [*mask, 0][place] != mask[place - 1]]
    return list(zip(borders[::2], borders[1::2], strict=True))


def test_the_most_probable_answer_needs_no_seed(
    engine: GenerationEngine, template: ChatTemplate
) -> None:
    greedy = Sampling(0.0, 1.0, 0, 0.0, 1.0, tuple(sorted(template.end_of_turn_ids)))
    question = Served(template, thinking=False).whole(
        [Message("user", "What is the capital of France?")], (), question=False
    )
    for number in range(2):
        engine.submit(str(number), question, greedy, max_tokens=5, seed=number)
    ended = []
    while len(ended) < 2:
        ended += engine.step()
    assert ended[0].ids == ended[1].ids
    assert all(generated.is_cut and len(generated.ids) == 5 for generated in ended)


def test_the_target_asks_and_answers(
    engine: GenerationEngine, rules: DialogueRules, tmp_path: Path
) -> None:
    found = write(InventedRows(2, None, 1, rules), engine, tmp_path)
    assert len({finished.question for finished in found}) == 2
    for finished in found:
        text = rules.served.decode(finished.samples[0].input_ids)
        assert f"<|im_start|>user\n{finished.question}<|im_end|>\n<|im_start|>assistant\n" in text


def test_a_length_that_the_target_does_not_have_is_refused(model: Path) -> None:
    with pytest.raises(InputError, match="more than the 8,192 positions of the target"):
        GenerationEngine(GenerationOptions(model, max_model_len=9000))
