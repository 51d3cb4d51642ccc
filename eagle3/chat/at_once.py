"""All answers of a plain conversation from one rendering of the whole.

Rendering each turn twice makes a conversation of n answers as dear as n squared. Where a template
leaves earlier turns as they were, which conversations of stand-ins tell, the end of each answer
can be read off the last rendering instead. What it says there must be the prompt as served, the
answer to the letter, and the stand-in's ending; for all else the caller renders every turn.
"""

from collections.abc import Sequence
from functools import lru_cache

from eagle3.chat.chat_template import ChatTemplate
from eagle3.chat.conversation import Conversation, Message

_STAND_IN = "stand-in"


def read_answers(
    conversation: Conversation, template: ChatTemplate
) -> list[tuple[int, str, str]] | None:
    """Turn, prompt and text up to the end of each answer; None where that takes more than this.

    Raises whatever the template raises.
    """
    messages = conversation.messages
    if not conversation.is_plain or template.marks_generation:
        return None
    turns = [turn for turn, message in enumerate(messages) if message.role == "assistant"]
    roles = tuple(message.role for message in messages[: turns[-1] + 1])
    endings = _endings(template, roles) if len(turns) > 1 else None
    if endings is None:
        return None
    whole = template.text(messages[: len(roles)])
    answers = []
    for turn, ending in zip(turns, endings, strict=True):
        prompt = template.text(messages[:turn], open_answer=True)
        answered = prompt + messages[turn].content + ending
        if not whole.startswith(answered):
            return None
        answers.append((turn, prompt, answered))
    return answers


@lru_cache(maxsize=256)
def _endings(template: ChatTemplate, roles: Sequence[str]) -> list[str] | None:
    """What the template puts behind each answer of such a conversation, if it leaves it there."""
    messages = [Message(role, _STAND_IN) for role in roles]
    try:
        whole = template.text(messages)
        endings = []
        for turn, role in enumerate(roles):
            if role != "assistant":
                continue
            begun = template.text(messages[:turn], open_answer=True) + _STAND_IN
            answered = template.text(messages[: turn + 1])
            if not answered.startswith(begun) or not whole.startswith(answered):
                return None
            endings.append(answered[len(begun) :])
    # A template that refuses the stand-ins tells nothing; the conversation itself will.
    except Exception:
        return None
    return endings
