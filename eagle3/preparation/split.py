"""Which conversations are held out for validation."""

import hashlib


def is_validation(seed: int, conversation: str, share: float) -> bool:
    """Whether the conversation with this id is held out: a function of its arguments alone.

    All samples of a conversation fall on the same side. A larger share holds out those of a
    smaller one and more.
    """
    digest = hashlib.sha256(f"eagle3 validation {seed} {conversation}".encode()).digest()
    return int.from_bytes(digest[:8]) < share * 2**64
