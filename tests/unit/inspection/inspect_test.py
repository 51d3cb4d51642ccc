"""What the user of inspect reads, and its exit codes."""

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from eagle3.inspect import inspect
from eagle3.store.part import Part
from eagle3.store.reader import StoreReader
from eagle3.store.row_format import FLOAT8
from eagle3.store.sample import Sample
from eagle3.store.used import remove_shards
from eagle3.store.writer import StoreWriter
from tests.unit.store import stored
from tests.unit.store.stored import make_manifest
from tests.unit.tiny_target import make_target

# "Hi" and "Yes" in the byte-level vocabulary of the tiny target, and other letters.
TEXT = Sample((39, 72, 56, 68, 82), (0, 0, 1, 1, 1))
SAMPLES = (TEXT, Sample((50, 60, 61), (1, 1, 1)), Sample((51,), (1,)))


class Desk:
    """A folder with a target and a store `states` of three samples in two shards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        target = dataclasses.replace(
            make_manifest(SAMPLES).target, path=str(make_target(folder / "target"))
        )
        self.manifest = dataclasses.replace(make_manifest(SAMPLES), target=target)
        self.store = folder / "states"
        stored.extract(self.store, self.manifest, SAMPLES[:2])
        stored.extract(self.store, self.manifest, SAMPLES[2:])

    def inspect(self, *arguments: str) -> Result:
        environment = {"BUILD_WORKING_DIRECTORY": str(self.folder)}
        return CliRunner(env=environment).invoke(inspect, arguments)

    def json(self, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
        result = self.inspect("states", "--json", *arguments)
        assert result.exit_code == exit_code, result.stderr
        assert result.stdout.count("\n") == 1
        return json.loads(result.stdout)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_the_tables_tell_what_is_in_the_store(desk: Desk) -> None:
    result = desk.inspect("states")
    assert result.exit_code == 0, result.stderr
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    rows = dict(line.split(maxsplit=1) for line in lines[:10])
    assert rows["where"] == str(desk.store)
    assert rows["samples"] == "3 (complete), 9 tokens"
    assert rows["shards"] == "2, 225 bytes of tensors"
    assert rows["states"] == "[T, 2, 4] bfloat16"
    assert rows["points"] == "after 3, 1 layers, before the norm"
    assert rows["target"] == str(desk.folder / "target")
    assert rows["stack"] == "cpu, torch 1; 1 patches"
    assert rows["command"] == "extract --out store"
    assert rows["set"] == "aside  none"
    assert rows["held"] == "out   none"
    assert lines[10] == ""
    assert lines[11].split() == [
        "point", "rows", "norm", "median", "min", "max", "largest", "unit", "outliers",
    ]  # fmt: skip


def test_what_is_held_out_is_told(desk: Desk) -> None:
    assert "held out   none\n" in desk.inspect("states").stdout
    assert (desk.json()["held_out"], desk.json()["held_out_tokens"]) == (0, 0)
    held_out = {TEXT.id, SAMPLES[2].id}
    with StoreWriter(desk.store, desk.manifest, held_out):
        pass
    told = desk.inspect("states").stdout
    assert "held out   2 samples, 6 tokens, by prepare\n" in told
    assert "3 of 5 tokens supervised, held out\n" in told
    other = desk.inspect("states", "--find", SAMPLES[1].id).stdout
    assert "3 of 3 tokens supervised\n" in other
    found = desk.json()
    assert (found["held_out"], found["held_out_tokens"]) == (2, 6)
    assert found["sample"]["held_out"]


def test_what_training_has_used_is_told(desk: Desk) -> None:
    store = StoreReader(desk.store)
    remove_shards(desk.store, [store.entries[SAMPLES[2].id]])
    assert "used       1 samples more, removed by training" in desk.inspect("states").stdout
    found = desk.json()
    assert (found["samples"], found["used"], found["complete"]) == (2, 1, True)


def test_a_store_is_packed_for_a_journey_and_unpacked(desk: Desk) -> None:
    packed = desk.inspect("states", "--pack", "packed")
    assert packed.exit_code == 0, packed.stderr
    assert f"{desk.folder / 'packed'}: " in packed.stdout
    unpacked = desk.inspect("packed", "--unpack", "again", "--json")
    assert unpacked.exit_code == 0, unpacked.stderr
    assert json.loads(unpacked.stdout)["folder"] == str(desk.folder / "again")
    assert desk.json("--verify", "--compare", "again")["compared"]["equal"] == 3
    refused = desk.inspect("states", "--pack", "again")
    assert (refused.exit_code, "holds states already" in refused.stderr) == (4, True)
    assert desk.inspect("states", "--pack", "x", "--unpack", "y").exit_code == 2


def test_the_preview_marks_what_is_supervised(desk: Desk) -> None:
    lines = [line.rstrip() for line in desk.inspect("states").stdout.splitlines()]
    assert lines[-3:] == [
        f"sample {TEXT.id}: rows 0 to 5 of shard-00000.safetensors, 3 of 5 tokens supervised",
        "  Hi",
        "+ Yes",
    ]


def test_without_a_tokenizer_the_preview_shows_ids(desk: Desk) -> None:
    for path in (desk.folder / "target").glob("*tokenizer*"):
        path.unlink()
    (desk.folder / "target" / "config.json").unlink()
    lines = [line.rstrip() for line in desk.inspect("states").stdout.splitlines()]
    assert lines[-2:] == ["  39 72", "+ 56 68 82"]


def test_a_terminal_shows_the_mask_in_colour(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    text = desk.inspect("states").stdout
    assert "\x1b[2m  Hi" in text
    assert "\x1b[1;32m+ Yes" in text


def test_statistics_are_those_of_the_states(desk: Desk) -> None:
    points = desk.json()["points"]
    states = torch.cat([stored.make_states(sample) for sample in SAMPLES]).double()
    for layer, point in enumerate(points):
        norms = states[:, layer].norm(dim=1)
        assert point["capture_point"] == stored.CAPTURE_POINTS[layer]
        assert point["rows"] == 9
        assert math.isclose(point["norm_mean"], norms.mean(), rel_tol=1e-5)
        assert math.isclose(point["norm_min"], norms.min(), rel_tol=1e-5)
        assert math.isclose(point["norm_max"], norms.max(), rel_tol=1e-5)
        assert point["largest"] == states[:, layer].max()
        assert point["largest_unit"] == states[:, layer].amax(dim=0).argmax()


def test_rows_that_stand_out_are_counted(desk: Desk) -> None:
    odd = Sample((45, 46, 47, 48), (1, 1, 1, 1))
    states = stored.make_states(odd)
    states[1, 0] *= 4096
    with StoreWriter(desk.store, desk.manifest) as store:
        store.begin([odd])
        store.write(odd, states)
        store.commit()
    assert [point["outlier_rows"] for point in desk.json()["points"]] == [1, 0]


def test_statistics_are_of_as_many_tokens_as_asked(desk: Desk) -> None:
    assert desk.json("--max-tokens", "1")["points"][0]["rows"] == 5
    assert desk.json("--max-tokens", "6")["points"][0]["rows"] == 8


def test_json_tells_all_of_it(desk: Desk) -> None:
    report = desk.json("--verify", "--compare", "states")
    assert report["samples"] == report["dataset_samples"] == 3
    assert report["complete"] is True
    assert report["capture_points"] == [3, 1]
    assert report["sample"]["id"] == TEXT.id
    assert report["sample"]["supervised"] == 3
    assert report["verified"]["damages"] == {}
    assert report["verified"]["bytes"] == 9 * 2 * 4 * 2
    assert report["compared"]["equal"] == 3


def test_verification_tells_its_progress(desk: Desk) -> None:
    result = desk.inspect("states", "--verify")
    assert result.exit_code == 0, result.stderr
    assert "verified: 3 of 3 samples are as committed; 144 bytes at " in result.stdout
    assert result.stderr.splitlines()[-1].startswith("verifying: 0.0/0.0 GB, ")


def test_what_is_verified_is_counted_as_it_lies_on_the_disk(desk: Desk) -> None:
    manifest = dataclasses.replace(desk.manifest, hidden_size=8, dtype=FLOAT8)
    with StoreWriter(desk.folder / "small", manifest) as store:
        store.begin(SAMPLES)
        for sample in SAMPLES:
            store.write(sample, torch.ones(len(sample.input_ids), 2, 8, dtype=torch.bfloat16))
        store.commit()
    result = desk.inspect("small", "--verify")
    assert result.exit_code == 0, result.stderr
    # 9 tokens, 2 points, 8 values of a byte and their scale.
    assert "verified: 3 of 3 samples are as committed; 216 bytes at " in result.stdout


def test_verification_names_the_sample_with_a_flipped_bit(desk: Desk) -> None:
    shard = desk.store / "shard-00000.safetensors"
    content = bytearray(shard.read_bytes())
    content[4096 + 6 * 16] ^= 1
    shard.write_bytes(content)
    result = desk.inspect("states", "--verify")
    assert result.exit_code == 4
    assert "verified: 2 of 3 samples are as committed" in result.stdout
    assert result.stderr.splitlines()[-1].startswith(
        f"error: 1 of 3 samples are damaged: sample {SAMPLES[1].id} (rows 5 to 8 of {shard})"
    )
    damages = desk.json("--verify", exit_code=4)["verified"]["damages"]
    assert list(damages.values()) == [[SAMPLES[1].id]]


@pytest.mark.parametrize("remove", [True, False])
def test_verification_names_a_shard_that_is_gone_or_cut(desk: Desk, remove: bool) -> None:
    shard = desk.store / "shard-00001.safetensors"
    if remove:
        shard.unlink()
    else:
        shard.write_bytes(shard.read_bytes()[:-1])
    result = desk.inspect("states", "--verify")
    assert result.exit_code == 4
    assert "verified: 2 of 3 samples are as committed" in result.stdout
    assert "shard-00001.safetensors" in result.stderr.splitlines()[-1]


def test_a_sample_is_found_by_the_beginning_of_its_id(desk: Desk) -> None:
    report = desk.json("--find", SAMPLES[2].id[:6])
    assert report["sample"]["id"] == SAMPLES[2].id
    assert report["sample"]["shard"] == "shard-00001.safetensors"
    assert report["points"][0]["rows"] == 1


def test_a_long_sample_is_shown_whole_only_where_it_was_asked_for(desk: Desk) -> None:
    long = Sample((39,) * 300, (1,) * 300)
    folder = desk.folder / "long"
    stored.extract(folder, desk.manifest, [long])
    assert f"... 100 more tokens; --find {long.id[:8]} shows all" in desk.inspect("long").stdout
    shown = desk.inspect("long", "--find", long.id).stdout
    assert "H" * 300 in shown
    assert "more tokens" not in shown


def test_a_sample_that_is_not_there_is_said(desk: Desk) -> None:
    result = desk.inspect("states", "--find", "zz")
    assert result.exit_code == 4
    assert "holds no samples whose ids begin with zz; give another id" in result.stderr
    result = desk.inspect("states", "--find", "")
    assert "holds 3 samples whose ids begin with ; give more of id" in result.stderr


def test_a_sample_that_was_set_aside_is_said(desk: Desk) -> None:
    unfit = Sample((77,), (1,))
    with StoreWriter(desk.store, desk.manifest) as store:
        store.begin([unfit])
        store.quarantine(unfit, "constant", "data:9: constant at token 0")
        store.commit()
    result = desk.inspect("states", "--find", unfit.id[:8])
    assert result.exit_code == 4
    assert f"sample {unfit.id} was set aside: data:9: constant at token 0" in result.stderr
    assert desk.json()["quarantined"] == {"constant": 1}


def test_stores_that_differ_are_told_apart(desk: Desk) -> None:
    other = dataclasses.replace(
        desk.manifest, stack=dataclasses.replace(desk.manifest.stack, name="cuda128")
    )
    states = stored.make_states(SAMPLES[1])
    states[2, 1] *= -1
    with StoreWriter(desk.folder / "other", other) as store:
        store.begin(SAMPLES[:2])
        store.write(SAMPLES[0], stored.make_states(SAMPLES[0]))
        store.write(SAMPLES[1], states)
        store.commit()
    compared = desk.json("--compare", "other", exit_code=4)["compared"]
    assert compared["equal"] == 1
    assert compared["only_here"] == [SAMPLES[2].id]
    assert compared["only_there"] == []
    assert compared["manifest"] == "stack.name is cuda128 there and cpu here"
    [difference] = compared["different"]
    assert difference["id"] == SAMPLES[1].id
    assert difference["capture_point"] == stored.CAPTURE_POINTS[1]
    assert math.isclose(difference["cosine"], -1, abs_tol=1e-6)
    assert difference["largest"] == 2 * float(stored.make_states(SAMPLES[1])[2, 1].max())
    result = desk.inspect("states", "--compare", "other")
    assert "1 samples are equal, 1 differ, 1 only here, 0 only there" in result.stdout
    assert result.stderr.startswith("comparing the stores ...\n")


def test_parts_are_joined(desk: Desk) -> None:
    folder = desk.folder / "shared"
    for number in range(2):
        part = Part(number, 2)
        ours = [sample for sample in SAMPLES if part.holds(sample.id)]
        stored.extract(part.folder(folder), desk.manifest, ours)
    assert "2; --merge joins them" in desk.inspect("shared").stdout
    merged = desk.inspect("shared", "--merge")
    assert "2, merged now" in merged.stdout
    assert merged.stderr.splitlines()[0] == "joining the parts ..."
    assert not StoreReader(folder).parts
    assert len(StoreReader(folder).ids) == 3


def test_an_empty_store_can_be_looked_at(desk: Desk) -> None:
    with StoreWriter(desk.folder / "empty", desk.manifest):
        pass
    result = desk.inspect("empty")
    assert result.exit_code == 0, result.stderr
    assert "0 (of 3), 0 tokens" in result.stdout


def test_a_folder_without_a_store_is_one_line(desk: Desk) -> None:
    result = desk.inspect("target")
    assert result.exit_code == 4
    assert result.stdout == ""
    assert result.stderr == (
        f"error: {desk.folder / 'target'} holds no states: there is no manifest.json\n"
    )


def test_the_command_does_not_hide_the_standard_library() -> None:
    code = "import sys, eagle3.inspect, inspect; print(inspect.__file__)"
    result = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "eagle3" not in Path(result.stdout.strip()).parts
