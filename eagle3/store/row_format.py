"""The forms in which rows of hidden states lie in a shard, and their sizes; see encoding.py."""

BFLOAT16 = "bfloat16"
FLOAT8 = "float8_e4m3fn"

SCALE_BYTES = 4


def width(dtype: str, hidden_size: int) -> int:
    """Bytes of a row [H] of one token at one capture point."""
    return 2 * hidden_size if dtype == BFLOAT16 else hidden_size + SCALE_BYTES
