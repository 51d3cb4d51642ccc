"""Sampling is the target's own, as far as the user does not say otherwise."""

import json
from pathlib import Path
from typing import Any

import pytest

from eagle3.chat.chat_template import ChatTemplate, load_chat_template
from eagle3.engine.generation import Sampling
from eagle3.errors import InputError
from eagle3.generation.sampling import SamplingOptions, read_sampling
from tests.unit.tiny_target import make_target


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_target(tmp_path / "target")


@pytest.fixture
def template(model: Path) -> ChatTemplate:
    return load_chat_template(model)


def configure(model: Path, **settings: Any) -> None:
    (model / "generation_config.json").write_text(json.dumps(settings))


def test_a_silent_configuration_is_that_of_a_server(model: Path, template: ChatTemplate) -> None:
    stops = tuple(sorted(template.end_of_turn_ids))
    expected = Sampling(1.0, 1.0, 0, 0.0, 1.0, stops)
    assert read_sampling(model, SamplingOptions(), template) == expected
    (model / "generation_config.json").unlink()
    assert read_sampling(model, SamplingOptions(), template) == expected


def test_the_user_comes_before_the_configuration(model: Path, template: ChatTemplate) -> None:
    configure(model, temperature=0.6, top_p=0.9, top_k=20, min_p=None, repetition_penalty=1)
    found = read_sampling(model, SamplingOptions(temperature=0.0), template)
    assert (found.temperature, found.top_p, found.top_k, found.min_p) == (0.0, 0.9, 20, 0.0)
    assert isinstance(found.repetition_penalty, float)
    assert read_sampling(model, SamplingOptions(top_p=0.5), template).top_p == 0.5


def test_more_stops_are_single_tokens(model: Path, template: ChatTemplate) -> None:
    [begin] = template.encode("<|begin|>")
    found = read_sampling(model, SamplingOptions(stop=("<|begin|>",)), template)
    assert set(found.stop_ids) == template.end_of_turn_ids | {begin}
    with pytest.raises(InputError, match=r"'User:' is 5 tokens of the target"):
        read_sampling(model, SamplingOptions(stop=("User:",)), template)


def test_a_damaged_configuration_is_told(model: Path, template: ChatTemplate) -> None:
    configure(model, temperature="hot")
    with pytest.raises(InputError, match=r"generation_config.json is damaged: "):
        read_sampling(model, SamplingOptions(), template)
