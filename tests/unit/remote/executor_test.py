"""The executor's health, as a probe sees it."""

import os
import time
from pathlib import Path

import pytest

from tools.remote.errors import ServiceError
from tools.remote.executor import check


def test_a_fresh_sign_of_life_is_healthy(tmp_path: Path) -> None:
    (tmp_path / "health").touch()
    check(tmp_path)


def test_no_sign_of_life_is_not(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="no executor runs in"):
        check(tmp_path)


def test_an_old_sign_of_life_is_not(tmp_path: Path) -> None:
    health = tmp_path / "health"
    health.touch()
    long_ago = time.time() - 100
    os.utime(health, (long_ago, long_ago))
    with pytest.raises(ServiceError, match="was last healthy 100 s ago"):
        check(tmp_path)
