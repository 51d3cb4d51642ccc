"""Code that comes with a model: what it is, and that nobody runs it unasked."""

import hashlib
import json
from pathlib import Path

from eagle3.errors import InputError


def remote_code(model: Path) -> dict[str, str]:
    """The Python files that the tokenizer in `model` would run, by name, with their SHA-256.

    They are all Python files of the folder where tokenizer_config.json names a class of its own,
    since those import each other. Raises InputError where the class lies in another repository,
    of which nothing here says what it holds.
    """
    named = _named_classes(model)
    if not named:
        return {}
    elsewhere = [name for name in named if "--" in name]
    if elsewhere:
        raise InputError(
            f"the tokenizer in {model} takes its code from elsewhere ({elsewhere[0]}), which is "
            "never fetched; copy that file into the folder and name it in tokenizer_config.json"
        )
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(model.glob("*.py"))
        if path.is_file()
    }


def describe_code(code: dict[str, str]) -> str:
    """The files of `code` with the beginning of each digest, in one line."""
    return ", ".join(f"{name} (sha256 {digest[:12]})" for name, digest in code.items())


def _named_classes(model: Path) -> list[str]:
    try:
        settings = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8"))
        classes = settings.get("auto_map", {}).get("AutoTokenizer")
    except FileNotFoundError:
        return []
    except (ValueError, AttributeError) as error:
        raise InputError(f"{model / 'tokenizer_config.json'} is not a JSON object") from error
    # One name for the slow class and one for the fast, either of which may be null.
    return [name for name in (classes if isinstance(classes, list) else [classes]) if name]
