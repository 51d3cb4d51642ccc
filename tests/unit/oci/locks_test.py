"""The locks of Debian packages agree: an image holds one version of a package."""

from pathlib import Path

import pytest
from runfiles import Runfiles

from tools.bootstrap.pins import Pin, read_pins

INTERPRETER = "tools/bootstrap/interpreter.lock.json"


def pins(path: str) -> dict[str, Pin]:
    runfiles = Runfiles.Create()
    found = runfiles.Rlocation(f"eagle3_training/{path}") if runfiles else None
    assert found
    return {pin.name: pin for pin in read_pins(Path(found)).debs}


@pytest.mark.parametrize("name", ["base", "compiler"])
def test_the_image_has_the_interpreters_packages(name: str) -> None:
    own, interpreter = pins(f"third_party/debian/{name}.lock.json"), pins(INTERPRETER)
    shared = own.keys() & interpreter.keys()
    assert {key: own[key] for key in shared} == {key: interpreter[key] for key in shared}


def test_the_c_library_is_shared() -> None:
    assert "libc6" in pins("third_party/debian/base.lock.json").keys() & pins(INTERPRETER).keys()
