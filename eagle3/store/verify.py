"""Reads every byte of a store and says which samples are not what was committed."""

from collections import defaultdict
from collections.abc import Callable

from eagle3.errors import StoreError
from eagle3.store.reader import StoreReader


def verify_store(store: StoreReader, on_bytes: Callable[[int], None]) -> dict[str, list[str]]:
    """What is wrong, and the ids of the samples that it concerns; nothing where all is well.

    `on_bytes` is told the bytes of its states, as they lie there, after each sample.
    """
    by_shard: dict[str, list[str]] = defaultdict(list)
    for entry in store.entries.values():
        by_shard[entry.shard].append(entry.id)
    damages: dict[str, list[str]] = {}
    for name, ids in by_shard.items():
        try:
            store.shard(name).read_ahead()
        except StoreError as error:
            damages[str(error)] = ids
            continue
        for sample_id in ids:
            try:
                _, rows = store.read_encoded(sample_id)
            except StoreError as error:
                damages[str(error)] = [sample_id]
            else:
                on_bytes(rows.nbytes)
    return damages
