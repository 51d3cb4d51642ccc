"""Which samples or conversations are held out for validation."""

import hashlib


def is_validation(seed: int, name: str, share: float) -> bool:
    """Whether the sample or conversation with the id `name` is held out.

    A function of its arguments alone. A larger share holds out those of a smaller one and more.
    """
    return held_out_rank(seed, name) < share * 2**64


def held_out_rank(seed: int, name: str) -> int:
    """Where `name` stands in the order in which growing shares hold out; evenly below 2**64."""
    digest = hashlib.sha256(f"eagle3 validation {seed} {name}".encode()).digest()
    return int.from_bytes(digest[:8])
