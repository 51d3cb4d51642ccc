"""How two stores differ, sample by sample."""

from dataclasses import dataclass

import torch

from eagle3.store.reader import StoreReader


@dataclass(frozen=True)
class SampleDifference:
    """Where one sample's states differ most: the capture point with the lowest cosine of a row.

    `largest` is the largest absolute difference of two values at any point.
    """

    id: str
    capture_point: int
    cosine: float
    largest: float


@dataclass(frozen=True)
class Comparison:
    """`manifest` is the first field in which the manifests differ, as a sentence, or None.

    `only_here` and `only_there` are ids of samples that the other store lacks; `equal` counts
    the samples with the same bytes on both sides, and `different` are the others, worst first.
    """

    manifest: str | None
    only_here: tuple[str, ...]
    only_there: tuple[str, ...]
    equal: int
    different: tuple[SampleDifference, ...]

    @property
    def is_equal(self) -> bool:
        """Whether both hold the same samples with the same bytes."""
        return not (self.only_here or self.only_there or self.different)


def compare_stores(here: StoreReader, there: StoreReader) -> Comparison:
    """Compares by the committed checksums, and looks into the samples whose checksums differ.

    Raises StoreError, also where the shapes of the states differ.
    """
    common = [sample_id for sample_id in here.ids if sample_id in there.entries]
    differing = [
        sample_id
        for sample_id in common
        if here.entries[sample_id].checksum != there.entries[sample_id].checksum
    ]
    different = [_difference(sample_id, here, there) for sample_id in differing]
    return Comparison(
        manifest=here.manifest.difference(there.manifest),
        only_here=tuple(sample_id for sample_id in here.ids if sample_id not in there.entries),
        only_there=tuple(sample_id for sample_id in there.ids if sample_id not in here.entries),
        equal=len(common) - len(differing),
        different=tuple(sorted(different, key=lambda difference: difference.cosine)),
    )


def _difference(sample_id: str, here: StoreReader, there: StoreReader) -> SampleDifference:
    ours_TLH = here.read(sample_id)[1].float()
    theirs_TLH = there.read(sample_id)[1].float()
    cosine_TL = torch.cosine_similarity(ours_TLH, theirs_TLH, dim=2)
    cosine_L = cosine_TL.amin(dim=0)
    layer = int(cosine_L.argmin())
    return SampleDifference(
        id=sample_id,
        capture_point=here.manifest.capture_points[layer],
        cosine=float(cosine_L[layer]),
        largest=float((ours_TLH - theirs_TLH).abs().max()),
    )
