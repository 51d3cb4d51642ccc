"""Keeps what the libraries say out of the user's terminal."""

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import loguru


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """Silences what the libraries say on import and of the configuration, and then for good."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    for name in ("speculators", "transformers", "torch.utils.cpp_extension"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Imported here, since it sets its logger's level on import.
        import vllm.logger  # noqa: F401

        logging.getLogger("vllm").setLevel(logging.CRITICAL)
        loguru.logger.disable("speculators")
        try:
            yield
        finally:
            # One of them configures the root logger, which is not theirs, for INFO.
            root.setLevel(level)
            root.handlers = handlers


@contextlib.contextmanager
def process_prints_to(path: Path) -> Iterator[None]:
    """What this process writes to stdout and stderr past Python goes to `path`.

    Gloo and libnuma write to the descriptors themselves. What Python prints to stderr, such as how
    far the start is, still reaches the terminal.
    """
    sys.stdout.flush()
    saved = [(descriptor, os.dup(descriptor)) for descriptor in (1, 2)]
    terminal = os.fdopen(os.dup(2), "w", encoding="utf-8", buffering=1)
    with path.open("ab") as log, terminal, contextlib.redirect_stderr(terminal):
        for descriptor, _ in saved:
            os.dup2(log.fileno(), descriptor)
        try:
            yield
        finally:
            for descriptor, copy in saved:
                os.dup2(copy, descriptor)
                os.close(copy)
