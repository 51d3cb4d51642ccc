"""Sizes as people read them."""


def readable_size(size: float) -> str:
    """`size` in bytes with a decimal unit, such as `32.7 MB`."""
    if size < 1000:
        return f"{size:.0f} bytes"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:,.1f} TB"
