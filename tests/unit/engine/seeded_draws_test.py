"""Seeded tokens: drawn from the right distribution, by seed and count alone."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from eagle3.engine.seeded_draws import Generator, random_sample, uniform

PROBABILITIES = (0.0, 0.5, 0.0, 0.25, 0.2, 0.05, 0.0)


@dataclass
class Counter:
    """Stands in for a generator on a GPU; those on a CPU have no offset."""

    seed: int
    offset: int = 0

    def initial_seed(self) -> int:
        return self.seed

    def get_offset(self) -> int:
        return self.offset

    def set_offset(self, offset: int) -> None:
        self.offset = offset


def distributions(rows: int) -> torch.Tensor:
    return torch.tensor([PROBABILITIES]).repeat(rows, 1)


def generators(seeds: list[int]) -> dict[int, Generator]:
    return {row: Counter(seed) for row, seed in enumerate(seeds)}


def check_shares(drawn: torch.Tensor) -> None:
    shares = torch.bincount(drawn, minlength=len(PROBABILITIES)) / len(drawn)
    assert shares.tolist() == pytest.approx(PROBABILITIES, abs=0.01)
    assert all(shares[token] == 0 for token, share in enumerate(PROBABILITIES) if share == 0)


def test_neighbouring_seeds_draw_from_the_distribution() -> None:
    check_shares(random_sample(distributions(20_000), generators(list(range(20_000)))))


def test_one_seed_draws_from_the_distribution() -> None:
    counter = Counter(7)
    drawn = [random_sample(distributions(1), {0: counter}) for _ in range(20_000)]
    check_shares(torch.cat(drawn))


def test_draws_one_after_another_are_independent() -> None:
    counters = list(generators(list(range(20_000))).values())
    first, second = uniform(counters), uniform(counters)
    assert np.corrcoef(first, second)[0, 1] == pytest.approx(0, abs=0.02)
    assert first.min() >= 0
    assert first.max() < 1


def test_a_token_depends_on_its_own_seed_alone() -> None:
    alone = [int(random_sample(distributions(1), {0: Counter(seed)})) for seed in range(50)]
    seeds = list(reversed(range(50)))
    together = random_sample(distributions(50), generators(seeds))
    assert together.tolist() == alone[::-1]
    # As rows stand in a running batch: in no order.
    shuffled: dict[int, Generator] = {row: Counter(49 - row) for row in reversed(range(50))}
    assert random_sample(distributions(50), shuffled).tolist() == alone[::-1]


def test_a_generator_that_was_moved_back_draws_the_same_again() -> None:
    counter = Counter(3, offset=8)
    [number] = uniform([counter])
    assert counter.offset == 12
    counter.set_offset(counter.get_offset() - 4)
    assert uniform([counter]) == [number]
    assert uniform([counter]) != [number]


def test_rows_without_a_seed_draw_as_well() -> None:
    torch.manual_seed(0)
    counters: dict[int, Generator] = {row: Counter(row) for row in range(0, 20_000, 2)}
    drawn = random_sample(distributions(20_000), counters)
    check_shares(drawn[1::2])
    expected = random_sample(distributions(10_000), generators(list(range(0, 20_000, 2))))
    assert drawn[::2].tolist() == expected.tolist()


def test_without_any_seed() -> None:
    torch.manual_seed(0)
    check_shares(random_sample(distributions(20_000), {}))
