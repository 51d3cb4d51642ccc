"""The command as a process of its own, with a fake target, that signals itself in mid-work.

Its first argument is the signal's number: it comes after a few rows or answers.
"""

import itertools
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import eagle3.generation.generate
import eagle3.preparation.prepare
from eagle3 import prepare
from eagle3.command import run
from eagle3.generation.generate import generate
from eagle3.generation.request import GenerationRequest
from eagle3.preparation.tokenizing import tokenize_chunks
from eagle3.progress import Progress
from tests.unit.fake_generator import FakeGenerator
from tests.unit.generation.requests import speech_of

ANSWERS = 5


def generate_until_signal(request: GenerationRequest, progress: Progress) -> Any:
    speak = speech_of(request.preparation.model, "It is {}.")
    numbers = itertools.count()

    def speak_until_signal(prompt: list[int], seed: int) -> Sequence[int]:
        if next(numbers) == ANSWERS:
            signal.raise_signal(number)
        return speak(prompt, seed)

    return generate(request, progress, FakeGenerator(speak_until_signal))


def tokenize_until_signal(*arguments: Any) -> Any:
    yield next(tokenize_chunks(*arguments))
    assert any(Path().glob(".*.partial/*"))
    signal.raise_signal(number)


if __name__ == "__main__":
    number = int(sys.argv.pop(1))
    setattr(eagle3.generation.generate, "generate", generate_until_signal)  # noqa: B010
    setattr(eagle3.preparation.prepare, "tokenize_chunks", tokenize_until_signal)  # noqa: B010
    run(prepare.prepare)
