"""Where the processes of a launched training meet."""

import ipaddress
from typing import Any

import pytest
from torch.distributed.launcher.api import LaunchConfig

from eagle3.training import launch as launching


def test_no_name_must_be_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    # An image's root without a resolver knows no names, not even localhost.
    seen: list[LaunchConfig] = []

    def elastic_launch(config: LaunchConfig, entrypoint: str) -> Any:
        seen.append(config)
        return lambda *arguments: None

    monkeypatch.setattr(launching, "elastic_launch", elastic_launch)
    assert launching.launch(2, "module", []) == 0
    [config] = seen
    host, _ = config.rdzv_endpoint.rsplit(":", 1)
    assert ipaddress.ip_address(host).is_loopback
    assert ipaddress.ip_address(config.local_addr or "the name of this machine").is_loopback
