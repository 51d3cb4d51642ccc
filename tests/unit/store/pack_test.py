"""A packed store unpacks to the same bytes, or not at all."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from eagle3.errors import StoreError
from eagle3.store import pack
from eagle3.store.pack import pack_store, unpack_store
from eagle3.store.part import Part
from eagle3.store.reader import StoreReader
from eagle3.store.row_format import FLOAT8
from eagle3.store.sample import Sample
from eagle3.store.used import remove_shards
from eagle3.store.writer import StoreWriter
from tests.unit.store.stored import CAPTURE_POINTS, contents, extract, make_manifest, make_samples

SAMPLES = make_samples(8)
HIDDEN_SIZE = 64
LONG = Sample(tuple(range(700)), (1,) * 700)


def unheard(done: int, total: int) -> None:
    assert 0 < done <= total


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two shards, the first of which is of several chunks, the last of them shorter."""
    monkeypatch.setattr(pack, "_CHUNK_BYTES", 100 * len(CAPTURE_POINTS) * HIDDEN_SIZE * 2)
    torch.manual_seed(0)
    samples = (*SAMPLES, LONG)
    manifest = make_manifest(samples, HIDDEN_SIZE)
    with StoreWriter(tmp_path / "store", manifest) as writer:
        for group in ((LONG, *SAMPLES[:2]), SAMPLES[2:]):
            writer.begin(group)
            for sample in group:
                shape = (len(sample.input_ids), len(CAPTURE_POINTS), HIDDEN_SIZE)
                writer.write(sample, torch.randn(shape).to(torch.bfloat16))
            writer.commit()
    return tmp_path / "store"


def test_every_file_comes_back_as_it_was(store: Path, tmp_path: Path) -> None:
    pack_store(store, tmp_path / "packed", unheard)
    unpack_store(tmp_path / "packed", tmp_path / "again", unheard)
    assert files(tmp_path / "again") == files(store)
    sizes = [sum(map(len, files(tmp_path / name).values())) for name in ("packed", "store")]
    # Random normal values: their exponents are as alike as those of states.
    assert 0.6 < sizes[0] / sizes[1] < 0.8


def test_bits_that_no_number_has_come_back_too(tmp_path: Path) -> None:
    [sample] = make_samples(1)
    manifest = make_manifest((sample,), 4)
    odd = torch.tensor([0x7FC1, -1, 0x7F80, 1, -32768, 0, 0x3F80, 77], dtype=torch.int16)
    with StoreWriter(tmp_path / "store", manifest) as writer:
        writer.begin([sample])
        writer.write(sample, odd.view(torch.bfloat16).view(1, 2, 4))
        writer.commit()
    pack_store(tmp_path / "store", tmp_path / "packed", unheard)
    unpack_store(tmp_path / "packed", tmp_path / "again", unheard)
    assert contents(tmp_path / "again") == contents(tmp_path / "store")


@pytest.mark.parametrize("place", ["line", "head", "upper", "lower", "tables"])
def test_a_flipped_bit_is_found(store: Path, tmp_path: Path, place: str) -> None:
    pack_store(store, tmp_path / "packed", unheard)
    path = tmp_path / "packed" / "shard-00000.safetensors.packed"
    content = bytearray(path.read_bytes())
    line = content.index(b"\n")
    places = {"line": 13, "head": line + 50, "upper": line + 4200, "lower": line + 16000}
    content[places.get(place, len(content) - 5)] ^= 4
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"shard-00000.safetensors.packed is damaged: "):
        unpack_store(tmp_path / "packed", tmp_path / "again", unheard)
    # What is there is no store yet.
    with pytest.raises(StoreError, match="holds no states"):
        StoreReader(tmp_path / "again")


@pytest.mark.parametrize("left", [0, 3, 100, 5000, 60_000])
def test_a_truncated_file_is_found(store: Path, tmp_path: Path, left: int) -> None:
    pack_store(store, tmp_path / "packed", unheard)
    path = tmp_path / "packed" / "shard-00000.safetensors.packed"
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(StoreError, match=r"packed is damaged: "):
        unpack_store(tmp_path / "packed", tmp_path / "again", unheard)


def test_it_goes_on_after_a_kill(store: Path, tmp_path: Path) -> None:
    pack_store(store, tmp_path / "packed", unheard)
    # As it was left in the middle of the second shard.
    packed = tmp_path / "packed"
    (packed / "manifest.json").unlink()
    second = packed / "shard-00001.safetensors.packed"
    second.rename(f"{second}.partial")
    pack_store(store, packed, unheard)
    unpack_store(packed, tmp_path / "again", unheard)
    assert files(tmp_path / "again") == files(store)


@pytest.mark.parametrize("lost", [None, "index.jsonl"])
@pytest.mark.parametrize("convert", [pack_store, unpack_store])
def test_the_beginning_of_another_store_is_refused(
    store: Path, tmp_path: Path, convert: Callable[..., None], lost: str | None
) -> None:
    """Its shards have the same names, and each would pass its own check."""
    other = tmp_path / "other"
    extract(other, make_manifest(SAMPLES[:2]), SAMPLES[:2])
    if convert is unpack_store:
        for name in (store, other):
            pack_store(name, name.with_suffix(".packed"), unheard)
        store, other = store.with_suffix(".packed"), other.with_suffix(".packed")
    convert(other, tmp_path / "there", unheard)
    # As it was left before its last file.
    (tmp_path / "there" / "manifest.json").unlink()
    if lost is not None:
        (tmp_path / "there" / lost).unlink()
    before = files(tmp_path / "there")
    with pytest.raises(StoreError, match="there has shards of another store; give another folder"):
        convert(store, tmp_path / "there", unheard)
    assert files(tmp_path / "there") == before


def test_used_and_quarantined_samples_are_told_on(store: Path, tmp_path: Path) -> None:
    reader = StoreReader(store)
    last = reader.shards[-1]
    remove_shards(store, [entry for entry in reader.entries.values() if entry.shard == last])
    pack_store(store, tmp_path / "packed", unheard)
    unpack_store(tmp_path / "packed", tmp_path / "again", unheard)
    assert StoreReader(tmp_path / "again").is_complete
    assert StoreReader(tmp_path / "again").used == StoreReader(store).used


def test_a_file_that_got_lost_on_the_way_is_found(store: Path, tmp_path: Path) -> None:
    """What is there would unpack to a store, of which readers find out only later."""
    pack_store(store, tmp_path / "packed", unheard)
    (tmp_path / "packed" / "shard-00001.safetensors.packed").unlink()
    with pytest.raises(StoreError, match=r"lacks shard-00001.safetensors.packed \(1 of 2 shards"):
        unpack_store(tmp_path / "packed", tmp_path / "again", unheard)
    assert not (tmp_path / "again").exists()


def test_the_wrong_direction_is_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"lacks shard-00000.safetensors.packed \(2 of 2 shards"):
        unpack_store(store, tmp_path / "again", unheard)
    pack_store(store, tmp_path / "packed", unheard)
    with pytest.raises(StoreError, match=r"lacks shard-00000.safetensors \(2 of 2 shards"):
        pack_store(tmp_path / "packed", tmp_path / "again", unheard)


def test_what_cannot_be_packed_is_refused(store: Path, tmp_path: Path) -> None:
    manifest = make_manifest(SAMPLES)
    extract(Part(0, 2).folder(tmp_path / "parts"), manifest, SAMPLES)
    with pytest.raises(StoreError, match="is in parts; join them with --merge first"):
        pack_store(tmp_path / "parts", tmp_path / "packed", unheard)
    extract(tmp_path / "fp8", dataclasses.replace(manifest, dtype=FLOAT8), SAMPLES)
    with pytest.raises(StoreError, match="are float8_e4m3fn; copy it as it is"):
        pack_store(tmp_path / "fp8", tmp_path / "packed", unheard)
    with pytest.raises(StoreError, match="holds states already; give another folder"):
        pack_store(store, tmp_path / "fp8", unheard)
    with pytest.raises(StoreError, match="holds no states"):
        unpack_store(tmp_path / "nothing", tmp_path / "again", unheard)
