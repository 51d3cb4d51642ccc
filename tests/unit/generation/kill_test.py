"""kill -9 at random moments: what is finished is never generated again, and nothing is lost."""

import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from eagle3.generation.generate import generate
from eagle3.generation.request import GenerationRequest
from eagle3.preparation.dataset import read_dataset
from eagle3.progress import Progress
from tests.unit.fake_generator import FakeGenerator
from tests.unit.generation.requests import make_request, speech_of, write_questions

KILLS = 12
ROWS = 30
SECONDS_PER_ANSWER = 0.01
ANSWERS = ("It is {}.", "I think it is {}, more or less.", "")


def engine_for(request: GenerationRequest, count: Path) -> FakeGenerator:
    """Takes its time, and notes each answer in the file `count`."""
    speak = speech_of(request.preparation.model, *ANSWERS)

    def speak_slowly(prompt: list[int], seed: int) -> Sequence[int]:
        time.sleep(SECONDS_PER_ANSWER)
        with count.open("a") as file:
            file.write(".")
        return speak(prompt, seed)

    return FakeGenerator(speak_slowly)


def start(request: GenerationRequest, count: Path) -> int:
    """Generates in a process of its own, and returns its number."""
    child = os.fork()
    if child == 0:
        exit_code = 1
        try:
            generate(request, Progress(), engine_for(request, count))
            exit_code = 0
        finally:
            # Never back into pytest, whatever was raised.
            os._exit(exit_code)
    return child


def test_kills_cost_no_answer_and_change_none(tmp_path: Path) -> None:
    data = write_questions(tmp_path / "d.jsonl", ROWS)
    chance = random.Random(0)
    whole = make_request(tmp_path, data, out="whole")
    report = generate(whole, Progress(), engine_for(whole, tmp_path / "none"))
    expected = list(read_dataset(whole.preparation.out))
    kills = resumed = number = 0
    while kills < KILLS:
        number += 1
        request, count = make_request(tmp_path, data, out=f"{number}"), tmp_path / f"said{number}"
        tries = 0
        while not request.preparation.out.exists():
            tries += 1
            child = start(request, count)
            if tries < 3:
                time.sleep(chance.uniform(0, ROWS * SECONDS_PER_ANSWER))
                os.kill(child, signal.SIGKILL)
            kills += os.WIFSIGNALED(os.waitpid(child, 0)[1])
        resumed += tries > 1
        assert list(read_dataset(request.preparation.out)) == expected
        # Each kill loses at most the answer that was being given.
        assert ROWS <= len(count.read_text()) <= ROWS + tries - 1
    assert resumed > number / 3
    assert report.statistics.answers == ROWS
