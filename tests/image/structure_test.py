"""What is in the image, without running it."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from runfiles import Runfiles

from tests.image import image
from tools.oci.contents import Entry, tree
from tools.oci.wheels import SITE

MIB = 1 << 20
# Budgets are a tenth above what was seen, so that growth is noticed in the commit that brings it.
MAX_PACKED_BYTES = 1_700 * MIB
MAX_UNPACKED_BYTES = 3_250 * MIB


@pytest.fixture(scope="module")
def entries() -> dict[str, Entry]:
    return tree(image.contents())


def located(path: str) -> Path:
    runfiles = Runfiles.Create()
    found = runfiles.Rlocation(path) if runfiles else None
    assert found, path
    return Path(found)


def test_layers_go_from_the_least_to_the_most_changing() -> None:
    names = [contents.layer.name for contents in image.contents()]
    assert names == ["debian", "python", "model", "torch", "vllm", "wheels", "patched", "workspace"]


def test_the_layer_that_every_edit_changes_is_small() -> None:
    by_name = {contents.layer.name: contents for contents in image.contents()}
    assert by_name["workspace"].layer.size < MIB
    assert by_name["patched"].layer.size < MIB


def test_size_budget() -> None:
    assert sum(contents.layer.size for contents in image.contents()) < MAX_PACKED_BYTES
    assert sum(contents.unpacked_size for contents in image.contents()) < MAX_UNPACKED_BYTES


def test_nothing_in_the_configuration_depends_on_when_it_was_built() -> None:
    config = image.config()
    assert config["created"] == "1970-01-01T00:00:00Z"
    assert {step["created"] for step in config["history"]} == {"1970-01-01T00:00:00Z"}


def test_user_and_environment() -> None:
    settings = image.config()["config"]
    assert settings["User"] == "65532:65532"
    variables = dict(line.split("=", 1) for line in settings["Env"])
    assert variables["PATH"] == "/usr/local/bin:/usr/bin:/bin"
    assert "LD_LIBRARY_PATH" not in variables


@pytest.mark.parametrize("command", image.commands())
def test_commands_are_programs(command: str, entries: dict[str, Entry]) -> None:
    assert entries[f"usr/local/bin/{command}"].mode == 0o755
    assert f"opt/eagle3/eagle3_training/eagle3/{command}.py" in entries


def test_python_is_the_toolchain(entries: dict[str, Entry]) -> None:
    prefix = located("python313/prefix/usr")
    for path in ("bin/python3.13", "lib/x86_64-linux-gnu/libc.so.6", "lib/python3.13/os.py"):
        found = entries[f"usr/{path}"]
        if found.kind == "link":
            found = entries[f"usr/{Path(path).parent}/{found.target}"]
        assert found.sha256 == hashlib.sha256((prefix / path).read_bytes()).hexdigest(), path


def test_every_distribution_of_the_lock_is_there(entries: dict[str, Entry]) -> None:
    versions = json.loads(located("stack_cpu/stamp.json").read_text())["versions"]
    found = {
        re.sub(r"[-_.]+", "-", match[1]).lower(): match[2]
        for path in entries
        if (match := re.match(rf"{SITE}/([^/]+)-([^-/]+)\.dist-info/METADATA$", path))
    }
    assert {name: found.get(name.lower().replace(".", "-")) for name in versions} == versions


def test_patches_are_in_it(entries: dict[str, Entry]) -> None:
    site = located("stack_cpu/site-packages")
    for path in ("speculators/applied_patches.py", "eagle3_stack.py"):
        expected = hashlib.sha256((site / path).read_bytes()).hexdigest()
        assert entries[f"{SITE}/{path}"].sha256 == expected


def test_debian_packages_are_known_to_scanners(entries: dict[str, Entry]) -> None:
    known = {
        path.rpartition("/")[2] for path in entries if path.startswith("var/lib/dpkg/status.d")
    }
    assert {"base-files", "bash", "ca-certificates", "libc6", "python3.13", "tzdata"} <= known
    assert "usr/share/doc/bash/copyright" in entries


@pytest.mark.parametrize(
    "pattern", [r"\.a$", r"/tests/", rf"^{SITE}/torch/include/", rf"^{SITE}/bin/", r"/man/man\d/"]
)
def test_what_run_time_does_not_need_is_not_there(pattern: str, entries: dict[str, Entry]) -> None:
    assert [path for path in entries if re.search(pattern, path)] == []


def test_one_store_of_certificates(entries: dict[str, Entry]) -> None:
    assert entries[f"{SITE}/certifi/cacert.pem"].target == "/etc/ssl/certs/ca-certificates.crt"
    assert entries["etc/ssl/certs/ca-certificates.crt"].size > 100_000
