"""One conversation: the mask covers what was generated, and prompts are the exact ids so far."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from eagle3.chat.conversation import Message
from eagle3.generation.dialogue import Dialogue, DialogueRules, Finished
from tests.unit.fake_generator import FakeGenerator
from tests.unit.generation.requests import make_rules


@pytest.fixture
def rules(tmp_path: Path) -> DialogueRules:
    return make_rules(tmp_path)


def asking(rules: DialogueRules, *questions: str, **options: Any) -> Dialogue:
    turns = [[Message("user", question)] for question in questions]
    return Dialogue("a", rules, [], turns, **options)


def hold(dialogue: Dialogue, *said: str | Sequence[int]) -> tuple[Finished, FakeGenerator]:
    """The dialogue's end where the target says these things, one after the other."""
    left = list(said)
    encode = dialogue.rules.served.template.encode

    def speak(prompt: list[int], seed: int) -> Sequence[int]:
        words = left.pop(0)
        return encode(words) if isinstance(words, str) else words

    engine = FakeGenerator(speak)
    while dialogue.finished is None:
        dialogue.ask(engine)
        if dialogue.finished is None:
            [generated] = engine.step()
            dialogue.take(generated)
    assert not left
    return dialogue.finished, engine


def spoken(rules: DialogueRules, finished: Finished) -> list[str]:
    """Each sample as text, what is supervised between «»."""
    texts = []
    for sample in finished.samples:
        text, before = "", 0
        for token, bit in zip(sample.input_ids, sample.loss_mask, strict=True):
            text += "«" if bit > before else "»" if bit < before else ""
            text += rules.served.decode([token])
            before = bit
        texts.append(text + "»" * before)
    return texts


def test_the_mask_is_what_was_generated(rules: DialogueRules) -> None:
    finished, engine = hold(asking(rules, "One?", "Two?"), " First.", "Second.")
    assert spoken(rules, finished) == [
        "<|begin|>user\nOne?<|end|>\n<|begin|>assistant\n« First.<|end|>»\n"
        "<|begin|>user\nTwo?<|end|>\n<|begin|>assistant\n«Second.<|end|>»"
    ]
    assert (finished.answers, finished.faults, finished.reason) == (2, (), "")
    assert finished.question == "One?"
    # Never rendered again: the white space before the first answer is still there.
    stop = rules.sampling.stop_ids[-1]
    first = [*engine.submitted[0].prompt, *rules.served.template.encode(" First."), stop]
    assert engine.submitted[1].prompt[: len(first)] == first


def test_tokens_that_no_tokenizer_would_choose_stay(rules: DialogueRules) -> None:
    encode = rules.served.template.encode
    newlines = [*encode("\n"), *encode("\n")]
    assert newlines != encode("\n\n")
    finished, _ = hold(asking(rules, "One?", "Two?"), [*encode("a"), *newlines], "b")
    ids = list(finished.samples[0].input_ids)
    assert any(ids[place : place + 2] == newlines for place in range(len(ids)))


def test_a_system_prompt_and_two_questions_in_a_row_are_asked(rules: DialogueRules) -> None:
    turns = [[Message("user", "One?"), Message("user", "Two?")]]
    dialogue = Dialogue("a", rules, [Message("system", "Be brief.")], turns)
    finished, _ = hold(dialogue, "Yes.")
    assert spoken(rules, finished)[0].startswith(
        "<|begin|>system\nBe brief.<|end|>\n<|begin|>user\nOne?<|end|>\n<|begin|>user\nTwo?"
    )


def test_where_turns_are_rewritten_each_answer_is_a_sample(tmp_path: Path) -> None:
    # The earlier answers are shortened to their first letter.
    forgetful = make_rules(tmp_path)
    forgetful.served.template.tokenizer.chat_template = (
        "{% for m in messages %}{{ '<|begin|>' + m['role'] + '\n' }}{% if m['role'] == 'assistant' "
        "%}{{ m['content'][0] }}{% else %}{{ m['content'] }}{% endif %}{{ '<|end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|begin|>assistant\n' }}{% endif %}"
    )
    finished, _ = hold(asking(forgetful, "One?", "Two?"), "First.", "Second.")
    assert spoken(forgetful, finished) == [
        "<|begin|>user\nOne?<|end|>\n<|begin|>assistant\n«First.<|end|>»",
        "<|begin|>user\nOne?<|end|>\n<|begin|>assistant\nF<|end|>\n"
        "<|begin|>user\nTwo?<|end|>\n<|begin|>assistant\n«Second.<|end|>»",
    ]


@pytest.mark.parametrize(
    ("said", "fault"), [("", "empty"), ("abc" * 20, "loop"), ("x1y2 z3?" * 9, "loop")]
)
def test_a_degenerate_answer_ends_the_conversation(
    rules: DialogueRules, said: str, fault: str
) -> None:
    finished, _ = hold(asking(rules, "One?", "Two?", "Three?"), "Fine.", said)
    assert spoken(rules, finished) == [
        "<|begin|>user\nOne?<|end|>\n<|begin|>assistant\n«Fine.<|end|>»"
    ]
    assert (finished.answers, finished.faults) == (2, (fault,))
    alone, _ = hold(asking(rules, "One?"), said)
    assert (alone.samples, alone.reason) == ((), f"answer: {fault}")


def test_a_degenerate_answer_may_be_kept(tmp_path: Path) -> None:
    rules = make_rules(tmp_path, on_degenerate="keep", max_tokens=3)
    finished, _ = hold(asking(rules, "One?", "Two?", "Three?"), "", "abcdef")
    [text] = spoken(rules, finished)
    # The answer that was cut has no end, and so no question follows.
    assert text.endswith("«<|end|>»\n<|begin|>user\nTwo?<|end|>\n<|begin|>assistant\n«abc»")
    assert finished.faults == ("empty", "length")


def test_prompt_and_answer_never_exceed_the_length(tmp_path: Path) -> None:
    rules = make_rules(tmp_path, max_model_len=80)
    finished, engine = hold(asking(rules, "One?", "Two?" * 10), "Fine.")
    assert len(engine.submitted) == 1
    assert engine.submitted[0].max_tokens == min(64, 80 - len(engine.submitted[0].prompt))
    assert len(finished.samples) == 1
    crowded, engine = hold(asking(rules, "One?" * 20))
    assert (crowded.samples, engine.submitted) == ((), [])
    assert crowded.reason == "no room for an answer in 80 tokens"


def test_a_call_of_a_tool_ends_the_conversation(rules: DialogueRules) -> None:
    special = rules.served.template.encode("<|begin|>")
    finished, engine = hold(asking(rules, "One?", "Two?"), [*special, *special])
    assert len(engine.submitted) == len(finished.samples) == 1


def test_the_target_asks_and_answers(rules: DialogueRules) -> None:
    dialogue = Dialogue("a", rules, [], [], invented=2)
    finished, engine = hold(dialogue, " What is it? ", "It.", "And what else?", "That.")
    assert spoken(rules, finished) == [
        "<|begin|>user\nWhat is it?<|end|>\n<|begin|>assistant\n«It.<|end|>»\n"
        "<|begin|>user\nAnd what else?<|end|>\n<|begin|>assistant\n«That.<|end|>»"
    ]
    assert finished.question == "What is it?"
    decode = rules.served.decode
    assert decode(engine.submitted[0].prompt) == "<|begin|>user\n"
    assert decode(engine.submitted[2].prompt).endswith("«It.<|end|>\n<|begin|>user\n"[1:])
    assert engine.submitted[0].sampling.temperature == 1.0
    assert engine.submitted[1].sampling == rules.sampling


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("", "question: empty"),
        ("Why?", "question: too short"),
        ("abc" * 20, "question: loop"),
        ("{}[]()<>!!??", "question: hardly a letter"),
        ("What is <|begin|> this?", "question: special tokens"),
    ],
)
def test_what_no_user_would_ask_is_not_answered(
    rules: DialogueRules, said: str, reason: str
) -> None:
    finished, engine = hold(Dialogue("a", rules, [], [], invented=1), said)
    assert (finished.samples, finished.reason) == ((), reason)
    assert len(engine.submitted) == 1


def test_seeds_differ_by_dialogue_turn_and_seed(tmp_path: Path) -> None:
    rules = make_rules(tmp_path / "a")
    other = make_rules(tmp_path / "b", seed=1)
    seeds = set()
    for key, chosen in (("a", rules), ("b", rules), ("a", other)):
        turns = [[Message("user", "One?")], [Message("user", "Two?")]]
        _, engine = hold(Dialogue(key, chosen, [], turns), "First.", "Second.")
        seeds.update(submission.seed for submission in engine.submitted)
    assert len(seeds) == 6
    assert all(0 <= seed < 2**63 for seed in seeds)
