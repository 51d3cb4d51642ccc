"""A target's own tokenizer and chat template, read from its folder."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eagle3.chat.conversation import Message
from eagle3.errors import InputError


class ChatTemplate:
    """Renders messages to token ids exactly as the target is served.

    `end_of_turn_ids` are the tokens at which the target stops generating.
    """

    def __init__(self, tokenizer: Any, end_of_turn_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self.end_of_turn_ids = end_of_turn_ids

    def render(self, messages: Sequence[Message], *, open_answer: bool = False) -> list[int]:
        """The token ids of `messages`; with `open_answer`, up to where the answer would begin."""
        return self._tokenizer.apply_chat_template(
            [{"role": message.role, "content": message.content} for message in messages],
            add_generation_prompt=open_answer,
            tokenize=True,
        )


def load_chat_template(model: Path) -> ChatTemplate:
    """Opens the tokenizer in `model`. No code that comes with a model is ever run.

    Raises InputError without a tokenizer, a chat template or an end-of-turn token.
    """
    # Imported here: seconds long, and not needed for data that is token ids already.
    from transformers import AutoTokenizer

    # It warns of lengths and arguments, which are checked where they matter.
    logging.getLogger("transformers").setLevel(logging.ERROR)
    instead = "give --data as `input_ids` and `loss_mask`, or another --model"
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            model, local_files_only=True, trust_remote_code=False
        )
    # transformers raises whatever its tokenizer classes raise: OSError, ValueError, KeyError ...
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"no usable tokenizer in {model} ({reason}); {instead}") from error
    if not tokenizer.chat_template:
        raise InputError(f"the tokenizer in {model} has no chat template; {instead}")
    end_of_turn_ids = _end_of_turn_ids(model, tokenizer.eos_token_id)
    if not end_of_turn_ids:
        raise InputError(
            f"no eos_token_id in generation_config.json or the tokenizer of {model}; {instead}"
        )
    return ChatTemplate(tokenizer, end_of_turn_ids)


def _end_of_turn_ids(model: Path, eos_token_id: int | None) -> frozenset[int]:
    """The stop tokens of the generation config and the tokenizer together.

    Llama-3 and Gemma name the token that ends a turn in generation_config.json alone; their
    tokenizer's eos token ends a document.
    """
    found = set() if eos_token_id is None else {eos_token_id}
    path = model / "generation_config.json"
    if path.is_file():
        try:
            configured = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
        except (ValueError, AttributeError) as error:
            raise InputError(f"{path} is not a JSON object") from error
        if configured is not None:
            found.update(configured if isinstance(configured, list) else [configured])
    return frozenset(found)
