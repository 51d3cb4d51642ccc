"""A conversation in one form, whichever form it was written in."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eagle3.errors import InputError


class NothingToTrainOnError(InputError):
    """The row is well-formed, but holds no answer."""


@dataclass(frozen=True)
class ToolCall:
    """A call that the assistant makes. `arguments` is a JSON object."""

    name: str
    arguments: dict[str, Any]
    id: str


class Message(NamedTuple):
    """One turn. `role` is system, user, assistant or tool.

    `reasoning` is what the assistant thought before `content`, without the marks around it;
    `tool_calls` are an assistant's, `name` and `tool_call_id` say which call a tool answers.
    """

    role: str
    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    name: str = ""
    tool_call_id: str = ""


@dataclass(frozen=True)
class Conversation:
    """A user speaks first (after an optional system prompt) and an assistant answers.

    `tools` are the functions on offer, as chat templates take them.
    """

    place: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = field(default=())

    @property
    def is_plain(self) -> bool:
        """Whether it is text alone, without tools or reasoning."""
        if self.tools:
            return False
        for message in self.messages:
            if message.reasoning or message.tool_calls or message.role == "tool":
                return False
        return True


def check_order(place: str, messages: tuple[Message, ...]) -> None:
    """Raises InputError where no target would be asked in this order."""
    roles = [message.role for message in messages]
    if "system" in roles[1:]:
        raise InputError(f"{place}: a system prompt may only stand first")
    if roles[int(roles[0] == "system") :][:1] != ["user"]:
        raise InputError(f"{place}: the first turn (after a system prompt) must be the user's")
    for turn, role in enumerate(roles):
        before = messages[turn - 1]
        if role == "tool" and before.role != "tool" and not before.tool_calls:
            raise InputError(f"{place}: turn {turn + 1} is a tool's, but no tool was called")
