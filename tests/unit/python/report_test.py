"""A test leaves a report however it ends, so that Bazel need not make one where it cannot."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from runfiles import Runfiles


def located(path: str) -> Path:
    runfiles = Runfiles.Create()
    found = runfiles.Rlocation(f"eagle3_training/{path}") if runfiles else None
    assert found
    return Path(found)


def run(command: list[str | Path], report: Path) -> subprocess.CompletedProcess[str]:
    """Starts a test as Bazel does."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TEST", "RUNFILES"))}
    environment |= {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TEST_TARGET": "//some:test",
        "XML_OUTPUT_FILE": str(report),
    }
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def cases(report: Path) -> list[tuple[str | None, str | None]]:
    """(test, what went wrong in it) of a JUnit report."""
    return [
        (case.get("name"), None if (error := case.find("error")) is None else error.get("message"))
        for case in ElementTree.parse(report).iter("testcase")
    ]


@pytest.mark.parametrize(
    ("body", "code", "seen"),
    [
        ("pass", 0, [("test_it", None)]),
        ("os._exit(3)", 3, [("//some:test", "ended before it wrote its report: see its log")]),
    ],
)
def test_pytest(
    body: str, code: int, seen: list[tuple[str | None, str | None]], tmp_path: Path
) -> None:
    test = tmp_path / "it_test.py"
    test.write_text(f"import os\n\ndef test_it():\n    {body}\n")
    report = tmp_path / "test.xml"
    done = run([sys.executable, located("tools/python/pytest_main.py"), test], report)
    assert done.returncode == code, done.stdout + done.stderr
    assert cases(report) == seen


def test_another_stack_in_the_image(tmp_path: Path) -> None:
    text: dict[str, str] = {}
    # What the file says is Python, too.
    exec(located("tools/python/image.bzl").read_text(), text)
    program = tmp_path / "program"
    program.write_text(f"{text['IMAGE_SHEBANG']}\nprint('ran')\n")
    program.chmod(0o755)
    stamp = tmp_path / "program.runfiles/stack_cpu/stamp.json"
    stamp.parent.mkdir(parents=True)
    stamp.write_text('{"digest": "0123abcd"}')
    report = tmp_path / "test.xml"
    done = run([program], report)
    assert done.returncode == 1
    assert done.stderr.startswith("error: built for the stack 0123abcd, and this image has ")
    assert cases(report) == []
