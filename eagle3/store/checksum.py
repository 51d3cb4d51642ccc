"""The checksum of a sample: fast enough to be taken of every byte that is written or read."""

from collections.abc import Buffer

import xxhash

from eagle3.store.sample import Sample


def sample_checksum(sample: Sample, rows: Buffer) -> str:
    """XXH3 (64 bits, 16 hexadecimal digits) over the rows, the token ids and the mask.

    The bytes are those in the shard, little-endian. XXH3 guards against faults of disks and
    programs, not against forgers; it runs at the speed of memory, SHA-256 at a tenth of that.
    """
    digest = xxhash.xxh3_64(rows)
    digest.update(sample.input_ids_bytes)
    digest.update(sample.loss_mask_bytes)
    return digest.hexdigest()
