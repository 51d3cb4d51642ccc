"""What is said of each family's template."""

from pathlib import Path

import pytest

from eagle3.chat.chat_template import ChatTemplate, load_chat_template
from eagle3.chat.lint import lint_template
from tests.unit.chat.families import FAMILIES, make_family
from tests.unit.tiny_target import CHAT_TEMPLATE, make_target

REWRITTEN = "earlier turns are rewritten"
DROPPED = "dropped from later turns"
REFUSED = "reasoning: refused"
NO_TOOLS = "tool calls: refused"
DATE = "asks for today's date"
EMPTY = "follows an empty block"
UNCUT = "cannot be cut"
RENDERED = "each row is rendered"
MARKS = "does not begin where the prompt ends"
NOTES = {
    "smollm2": [NO_TOOLS, REFUSED],
    "smollm3": [NO_TOOLS, DROPPED, EMPTY, MARKS, RENDERED],
    "qwen2_5": [REFUSED],
    "qwen3": [REWRITTEN, DROPPED, EMPTY, RENDERED],
    "qwen3_thinking": [REWRITTEN, DROPPED, EMPTY, RENDERED],
    "llama3": [REFUSED, DATE],
    "deepseek_v3": [REFUSED],
    "deepseek_r1": [REWRITTEN, DROPPED, EMPTY, RENDERED],
    "kimi_k2": [REFUSED],
    "kimi_k2_5": [DROPPED, EMPTY, RENDERED],
    "gpt_oss": [REWRITTEN, DROPPED, DATE, RENDERED],
    "glm4": [REFUSED, RENDERED],
    "gemma3": [NO_TOOLS, REFUSED, RENDERED],
    "mistral": [REFUSED, UNCUT],
}


def notes(template: ChatTemplate) -> list[str]:
    return [finding.text for finding in lint_template(template) if finding.kind == "note"]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_has_its_notes_and_no_others(tmp_path: Path, name: str) -> None:
    found = notes(load_chat_template(make_family(tmp_path / "t", FAMILIES[name])))
    assert len(found) == len(NOTES[name]), found
    for note, expected in zip(found, NOTES[name], strict=True):
        assert expected in note


def test_marks_that_begin_elsewhere_are_noted(tmp_path: Path) -> None:
    early = CHAT_TEMPLATE.replace(
        "{{ '<|begin|>' + message['role']", "{% generation %}{{ '<|begin|>' + message['role']"
    ).replace("{% endfor %}", "{% endgeneration %}{% endfor %}")
    template = load_chat_template(make_target(tmp_path / "t", chat_template=early))
    assert any(MARKS in note for note in notes(template))


def test_an_end_of_turn_that_the_tokenizer_does_not_know_is_told(tmp_path: Path) -> None:
    folder = make_target(tmp_path / "t")
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 99999]}')
    first, *_ = lint_template(load_chat_template(folder))
    assert first.text.endswith(" or 99999")


def test_a_template_without_end_of_turn_is_a_fault(tmp_path: Path) -> None:
    without = CHAT_TEMPLATE.replace("<|end|>", "")
    template = load_chat_template(make_target(tmp_path / "t", chat_template=without))
    *_, last = lint_template(template)
    assert last.kind == "fault"
    assert "holds 0 end-of-turn tokens" in last.text
