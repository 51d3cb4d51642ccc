"""The conversations that every family's golden file shows, and how a sample is written there."""

from typing import Any

from eagle3.chat.chat_template import ChatTemplate
from eagle3.chat.conversation import Conversation
from eagle3.chat.formats import parse_row
from eagle3.chat.jsonl import Record
from eagle3.chat.supervision import tokenize_turns
from eagle3.chat.token_sequence import TokenSequence
from eagle3.errors import InputError

_WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"city": "string"}},
}
_CALL = {
    "id": "call00000",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Ulm"}'},
}
_RESULT = {"role": "tool", "tool_call_id": "call00000", "content": '{"degrees": 7}'}


def _user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _assistant(content: str | None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


ROWS: dict[str, dict[str, Any]] = {
    "multi-turn": {
        "messages": [
            {"role": "system", "content": "Answer in German."},
            _user("One?"),
            _assistant("Eins."),
            _user("What does assistant\nmean?"),
            _assistant("Gehilfe.\n\nMehr nicht."),
        ]
    },
    "tools": {
        "tools": [_WEATHER],
        "messages": [
            _user("Weather in Ulm?"),
            _assistant(None, tool_calls=[_CALL]),
            _RESULT,
            _assistant("7 degrees."),
            _user("Thanks."),
            _assistant("Welcome."),
        ],
    },
    "thinking": {
        "messages": [
            _user("2 + 2?"),
            _assistant("4.", reasoning_content="Two and two."),
            _user("3 + 3?"),
            _assistant("<think>\nThree and three.\n</think>\n\n6."),
        ]
    },
    "thinking with tools": {
        "tools": [_WEATHER],
        "messages": [
            _user("Weather in Ulm?"),
            _assistant(None, tool_calls=[_CALL], reasoning_content="I must ask."),
            _RESULT,
            _assistant("7 degrees.", reasoning_content="It is cold."),
        ],
    },
}


def parse(name: str) -> Conversation:
    row = parse_row(Record("row", ROWS[name]), "messages")
    assert isinstance(row, Conversation)
    return row


def golden(template: ChatTemplate) -> str:
    """What each conversation becomes: one block a sample, supervised text in «»."""
    lines = []
    for name in ROWS:
        lines.append(f"=== {name}")
        try:
            sequences = tokenize_turns(parse(name), template)
        except InputError as error:
            lines.append(f"refused: {error}")
            continue
        for number, sequence in enumerate(sequences, start=1):
            lines += [f"--- sample {number}", marked(sequence, template)]
    return "\n".join(lines) + "\n"


def marked(sequence: TokenSequence, template: ChatTemplate) -> str:
    """The text of a sample with «» around each unbroken run of supervised tokens."""
    runs: list[tuple[int, list[int]]] = []
    for token, supervised in zip(sequence.input_ids, sequence.loss_mask, strict=True):
        if not runs or runs[-1][0] != supervised:
            runs.append((supervised, []))
        runs[-1][1].append(token)
    return "".join(
        f"«{_decode(tokens, template)}»" if supervised else _decode(tokens, template)
        for supervised, tokens in runs
    )


def _decode(tokens: list[int], template: ChatTemplate) -> str:
    """The text of `tokens`, with every space that a SentencePiece decoder would swallow."""
    tokenizer = template.tokenizer
    text = "".join(tokenizer.convert_ids_to_tokens(tokens))
    if "▁" in tokenizer.get_vocab():
        return text.replace("▁", " ").replace("<0x0A>", "\n")
    return template.decode(tokens)
