"""A target's own tokenizer and chat template, read from its folder."""

import datetime
import json
import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from eagle3.chat.conversation import Message, ToolCall
from eagle3.chat.remote_code import describe_code, remote_code
from eagle3.errors import InputError

_INSTEAD = "give --data as `input_ids` and `loss_mask`, or another --model"
_PROBE_CALL = ToolCall("probe_tool", {"probe_key": "probe value"}, "call00000")
_PROBE_PARTS = ("probe_tool", "probe_key", "probe value")


class ChatTemplate:
    """Renders messages to text and text to token ids, exactly as the target is served.

    `end_of_turn_ids` are the tokens at which the target stops generating. `date` is what a
    template takes for today, where it asks.
    """

    def __init__(
        self, tokenizer: Any, end_of_turn_ids: frozenset[int], date: datetime.date | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self.end_of_turn_ids = end_of_turn_ids
        self._date = date or datetime.date.today()

    @cached_property
    def renders_itself(self) -> bool:
        """Whether the tokenizer has its own way to render, as Kimi's does."""
        from transformers import PreTrainedTokenizerBase

        own = type(self.tokenizer).apply_chat_template
        return own is not PreTrainedTokenizerBase.apply_chat_template

    @cached_property
    def _render(self) -> Callable[..., Any]:
        from transformers.utils.chat_template_utils import render_jinja_template

        return render_jinja_template

    @cached_property
    def _special_tokens(self) -> dict[str, Any]:
        return self.tokenizer.special_tokens_map

    @cached_property
    def _template(self) -> str:
        return self.tokenizer.get_chat_template()

    @cached_property
    def _template_with_tools(self) -> str:
        return self.tokenizer.get_chat_template(tools=[{}])

    @property
    def source(self) -> str:
        """The template's own text."""
        template = self.tokenizer.chat_template
        # Several by name: the tokenizer picks one for tools and one for the rest.
        return template if isinstance(template, str) else "\n".join(template.values())

    def text(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] = (),
        *,
        open_answer: bool = False,
        thinking: bool = False,
    ) -> str:
        """`messages` as the target reads them; with `open_answer`, up to where it would answer.

        `thinking` is what a request would say: whether the target is to think before it answers.
        Raises whatever the template raises: it is a program from the model's folder.
        """
        return self.render(
            self._plain(messages), list(tools) or None, open_answer=open_answer, thinking=thinking
        )

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        *,
        open_answer: bool = False,
        thinking: bool = False,
    ) -> str:
        """`text` of messages that are in the form of chat templates already."""
        settings = self._settings(thinking)
        if self.renders_itself:
            return self.tokenizer.apply_chat_template(
                messages,
                tools=tools,
                add_generation_prompt=open_answer,
                tokenize=False,
                **settings,
            )
        # What apply_chat_template calls, without what it looks up anew for every conversation.
        rendered, _ = self._render(
            conversations=[messages],
            tools=tools,
            chat_template=self._template_with_tools if tools else self._template,
            add_generation_prompt=open_answer,
            **self._special_tokens,
            **settings,
        )
        return rendered[0]

    def encode(self, text: str) -> list[int]:
        """The token ids of `text`, of which nothing but `text` is a part."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each of `texts`."""
        if self.tokenizer.is_fast:
            # The same ids as by a call of the tokenizer, without the offsets nobody needs.
            encodings = self.tokenizer.backend_tokenizer.encode_batch_fast(
                list(texts), add_special_tokens=False
            )
            return [encoding.ids for encoding in encodings]
        return [self.tokenizer.encode(text, add_special_tokens=False) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens and all, with nothing tidied up."""
        return self.tokenizer.decode(
            ids, clean_up_tokenization_spaces=False, spaces_between_special_tokens=False
        )

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of all special tokens, which no text holds."""
        added = self.tokenizer.added_tokens_decoder
        return frozenset(number for number, token in added.items() if token.special)

    @cached_property
    def marks_generation(self) -> bool:
        """Whether the template says itself, by `{% generation %}`, what the target generates."""
        return any(mark in self.source for mark in ("{% generation", "{%- generation"))

    def generation_starts(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], *, thinking: bool
    ) -> list[int]:
        """Where in `text(messages)` each part begins that the template marks as generated."""
        _, spans = self._render(
            conversations=[self._plain(messages)],
            tools=list(tools) or None,
            chat_template=self._template_with_tools if tools else self._template,
            return_assistant_tokens_mask=True,
            **self._special_tokens,
            **self._settings(thinking),
        )
        return [start for start, _ in spans[0]]

    @cached_property
    def tool_call_form(self) -> tuple[bool, bool]:
        """How the template wants a tool call: (arguments as JSON text, no content as null).

        Found out by trying; (False, False), which is what vLLM's server gives, where none works.
        """
        for form in ((False, False), (True, False), (False, True), (True, True)):
            if self._takes_tool_calls(form):
                return form
        return (False, False)

    @property
    def takes_tool_calls(self) -> bool:
        return self._takes_tool_calls(self.tool_call_form)

    def _takes_tool_calls(self, form: tuple[bool, bool]) -> bool:
        asked = [Message("user", "probe question")]
        called = [*asked, Message("assistant", "", tool_calls=(_PROBE_CALL,))]
        try:
            rendered = self.tokenizer.apply_chat_template(
                [_plain(message, form) for message in called],
                tokenize=False,
                **self._settings(False),
            )
        # Whatever a template raises means that it does not take this form.
        except Exception:
            return False
        # Escaped quotes: text within text. A quoted 'probe_key': an object printed as Python does.
        misread = ('\\"', "'probe_key'", "None")
        return all(part in rendered for part in _PROBE_PARTS) and not any(
            part in rendered for part in misread
        )

    @cached_property
    def closings(self) -> dict[bool, str]:
        """What ends an answer that the template leaves open, without and with a tool call.

        GLM-4's templates write no end-of-turn token: the target stops by generating the header
        of whoever speaks next, `<|user|>` or `<|observation|>`. Empty for all others.
        """
        asked = [Message("user", "a")]
        answered = [*asked, Message("assistant", "b")]
        called = [*asked, Message("assistant", "", tool_calls=(_PROBE_CALL,))]
        result = Message("tool", "c", name=_PROBE_CALL.name, tool_call_id=_PROBE_CALL.id)
        return {
            False: self._closing(asked, answered, Message("user", "c")),
            True: self._closing(asked, called, result) if self.takes_tool_calls else "",
        }

    def _closing(self, asked: list[Message], answered: list[Message], following: Message) -> str:
        try:
            prompt = self.text(asked, open_answer=True)
            whole = self.text(answered)
            longer = self.text([*answered, following])
        # A template that refuses the probe has nothing to say here; the data will tell.
        except Exception:
            return ""
        answer = self.encode(whole[len(prompt) :])
        if not longer.startswith(whole) or self.end_of_turn_ids.intersection(answer):
            return ""
        first = self.encode(longer[len(whole) :])[0]
        token = self.tokenizer.convert_ids_to_tokens(first)
        return token if first in self.end_of_turn_ids else ""

    def _plain(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        if any(message.tool_calls for message in messages):
            return [_plain(message, self.tool_call_form) for message in messages]
        return [_plain(message, (False, False)) for message in messages]

    def _settings(self, thinking: bool) -> dict[str, Any]:
        """The names by which templates know what a request asks for; others pass them over."""
        return {
            "enable_thinking": thinking,
            "thinking": thinking,
            "strftime_now": self._date.strftime,
        }


def load_chat_template(
    model: Path, *, trust_remote_code: bool = False, date: datetime.date | None = None
) -> ChatTemplate:
    """Opens the tokenizer in `model`.

    Code that comes with the model is run only with `trust_remote_code`, and only from `model`.
    Raises InputError without a tokenizer, a chat template or an end-of-turn token.
    """
    # Imported here: seconds long, and not needed for data that is token ids already.
    from transformers import AutoTokenizer

    if trust_remote_code:
        remote_code(model)  # refuses code from elsewhere
    # It warns of lengths and arguments, which are checked where they matter.
    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            model, local_files_only=True, trust_remote_code=trust_remote_code
        )
    # transformers raises whatever its tokenizer classes raise: OSError, ValueError, KeyError ...
    except Exception as error:
        code = remote_code(model)
        if code and not trust_remote_code:
            raise InputError(
                f"no usable tokenizer in {model} without code of its own: {describe_code(code)}; "
                "read it, then give --trust-remote-code to run it"
            ) from error
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"no usable tokenizer in {model} ({reason}); {_INSTEAD}") from error
    if not tokenizer.chat_template:
        raise InputError(f"the tokenizer in {model} has no chat template; {_INSTEAD}")
    end_of_turn_ids = _end_of_turn_ids(model, tokenizer.eos_token_id)
    if not end_of_turn_ids:
        raise InputError(
            f"no eos_token_id in generation_config.json or the tokenizer of {model}; {_INSTEAD}"
        )
    return ChatTemplate(tokenizer, end_of_turn_ids, date)


def _plain(message: Message, tool_call_form: tuple[bool, bool]) -> dict[str, Any]:
    """`message` as chat templates take it, with only those keys that say something."""
    arguments_as_text, null_content = tool_call_form
    plain: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        # Qwen, GLM, DeepSeek and Kimi read the first, gpt-oss the second.
        plain["reasoning_content"] = plain["thinking"] = message.reasoning
    if message.tool_calls:
        plain["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json.dumps(call.arguments, ensure_ascii=False)
                    if arguments_as_text
                    else call.arguments,
                },
            }
            for call in message.tool_calls
        ]
        if null_content and not message.content:
            plain["content"] = None
    if message.name:
        plain["name"] = message.name
    if message.tool_call_id:
        plain["tool_call_id"] = message.tool_call_id
    return plain


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
        if configured is None:
            return frozenset(found)
        ids = configured if isinstance(configured, list) else [configured]
        if not all(isinstance(number, int) for number in ids):
            raise InputError(f"{path} has an `eos_token_id` that is no token id: {configured}")
        found.update(ids)
    return frozenset(found)
