"""Draws samples of a dataset to ask the target for answers of its own."""

from functools import partial
from heapq import nsmallest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import dataset as open_files

from eagle3.errors import InputError
from eagle3.preparation.dataset import check_file, read_description
from eagle3.preparation.split import held_out_rank
from eagle3.store.sample import ids_digest


def part_digest(folder: Path, part: str) -> str:
    """The digest of all samples of `part`, as a store's manifest has it. Raises InputError."""
    paths = [folder / name for name in read_description(folder)["files"] if _is_of(part, name)]
    try:
        return ids_digest(open_files(paths).to_table(columns=["id"])["id"].to_pylist())
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"cannot read {folder}: {error}; prepare the data again") from error


def draw_prompted(folder: Path, part: str, count: int, seed: int) -> list[dict[str, Any]]:
    """`count` rows of `part`, or all, of those in which something stands before the first answer.

    They are the ones, by sample id, that a split with `seed` holds out first, in that order.
    Raises as `read_dataset` does.
    """
    files = read_description(folder)["files"]
    paths = [folder / name for name in files if _is_of(part, name)]
    try:
        for path in paths:
            check_file(path, files[path.name])
        rows = open_files(paths)
        ids = (
            sample_id.as_py()
            for batch in rows.to_batches(columns=["id", "loss_mask"])
            for sample_id, mask in zip(*batch.columns, strict=True)
            if not mask[0].as_py()
        )
        drawn = nsmallest(count, ids, key=partial(held_out_rank, seed))
        found = rows.to_table(filter=pc.field("id").isin(pa.array(drawn, pa.string()))).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"cannot read {folder}: {error}; prepare the data again") from error
    return sorted(found, key=lambda row: held_out_rank(seed, row["id"]))


def _is_of(part: str, name: str) -> bool:
    return name.startswith(f"{part}-")
