"""Where a setting comes from, and what is said of one that makes no sense."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from eagle3.errors import InputError
from eagle3.training.config import GROUPS, KEYS, TrainConfig
from eagle3.training.options import config_options
from eagle3.training.settings import make_config, read_settings, settings_of_flags, write_config


def write(folder: Path, text: str) -> Path:
    path = folder / "train.yaml"
    path.write_text(text)
    return path


def test_a_later_layer_wins_key_by_key(tmp_path: Path) -> None:
    file = write(tmp_path, "optimizer:\n  learning_rate: 1e-3\n  clip: 2\nrun:\n  seed: 5\n")
    config = make_config(read_settings(file), settings_of_flags({"clip": "0.25", "html": True}))
    assert config.optimizer.learning_rate == 1e-3
    assert config.optimizer.clip == 0.25
    assert config.run.seed == 5
    assert config.run.html
    assert config.data == TrainConfig().data


def test_the_defaults_are_the_fields(tmp_path: Path) -> None:
    assert make_config() == TrainConfig()
    unroll = TrainConfig().unroll
    assert (unroll.unroll_steps, unroll.unroll_decay, unroll.feed) == (7, 0.8, "true")
    assert TrainConfig().draft.draft_vocab == 32000


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    config = make_config({"schedule": {"max_steps": 7}, "data": {"noise": 0.5}})
    assert make_config(read_settings(write(tmp_path, write_config(config)))) == config


def test_a_word_may_stand_without_quotes(tmp_path: Path) -> None:
    assert make_config(read_settings(write(tmp_path, "unroll: {feed: true}"))).unroll.feed == "true"
    with pytest.raises(InputError, match="feed: invalid enum value 'false'"):
        make_config(read_settings(write(tmp_path, "unroll: {feed: no}")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optimizer:\n  learning_rte: 1\n", "unknown key optimizer.learning_rte; did you mean opt"),
        ("optimizer:\n  unroll_steps: 1\n", "did you mean unroll.unroll_steps?"),
        ("optimiser:\n  clip: 1\n", "unknown group optimiser; did you mean optimizer?"),
        (
            "learning_rate: 1\n",
            "unknown group learning_rate; did you mean optimizer.lea",
        ),
        ("data: 5\n", "data must have keys below it"),
        ("- 5\n", "must have groups of keys (data, draft, unroll"),
        ("data: [\n", "is not YAML"),
    ],
)
def test_a_file_that_makes_no_sense(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read_settings(write(tmp_path, text))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*: No such file"):
        read_settings(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("unroll_steps", "0", r"unroll.unroll_steps: expected `int` >= 1"),
        ("learning_rate", "fast", r"optimizer.learning_rate: expected `float`"),
        ("schedule", "stairs", r"schedule.schedule: invalid enum value 'stairs'"),
        ("validation_share", 1, r"data.validation_share: expected `float` < 1.0"),
    ],
)
def test_a_value_that_makes_no_sense(key: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_config(settings_of_flags({key: value}))


def test_names_are_unique_over_the_groups() -> None:
    assert len(KEYS) == sum(len(fields(kind)) for kind in GROUPS.values())


def test_every_key_is_a_flag_and_only_given_ones_count() -> None:
    seen: dict[str, Any] = {}

    @click.command()
    @config_options
    def command(**flags: Any) -> None:
        seen.update(flags)

    arguments = ["--learning-rate", "2e-4", "--no-export", "--schedule", "linear"]
    assert CliRunner().invoke(command, arguments).exit_code == 0
    assert seen.keys() == KEYS.keys()
    given = {key: value for key, value in seen.items() if value is not None}
    assert given == {"learning_rate": "2e-4", "export": False, "schedule": "linear"}
    assert make_config(settings_of_flags(given)).optimizer.learning_rate == 2e-4
