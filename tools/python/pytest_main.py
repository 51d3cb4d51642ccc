"""Runs pytest on the files named on the command line, as Bazel's test protocol wants it."""

import gc
import os
import sys
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest

# Where a test leaves no report, Bazel makes one of its log on the executor, by sed: the project's
# image has none, and that failure is then all that is seen of the test.
_UNFINISHED = """\
<testsuites><testsuite name="pytest" tests="1" errors="1" failures="0">
<testcase name={name}><error message="ended before it wrote its report: see its log"/></testcase>
</testsuite></testsuites>
"""


def main(arguments: list[str]) -> int:
    """Returns pytest's exit code; no test found (5) is a failure like any other."""
    # torch asks for the user's name on import. A container's user may have none, and then Bazel
    # sets USER to nothing.
    os.environ["USER"] = os.environ.get("USER") or "nobody"
    options = [
        "--import-mode=importlib",
        "--rootdir=.",
        # The checkout's settings must not reach a test that runs unsandboxed beside it.
        "--config-file=/dev/null",
        "-p",
        "no:cacheprovider",
        "-o",
        "python_files=*_test.py",
        "-o",
        # Third-party packages warn about themselves at import; none of it is ours to mend.
        "addopts=-ra --color=no -W ignore::DeprecationWarning -W ignore::FutureWarning",
    ]
    if report := os.environ.get("XML_OUTPUT_FILE"):
        # pytest writes over it at the end of its run.
        name = quoteattr(os.environ.get("TEST_TARGET", "test"))
        Path(report).write_text(_UNFINISHED.format(name=name))
        options.append(f"--junitxml={report}")
    if only := os.environ.get("TESTBRIDGE_TEST_ONLY"):
        options += ["-k", only]
    if scratch := os.environ.get("TEST_TMPDIR"):
        options.append(f"--basetemp={scratch}/pytest")
    exit_code = pytest.main([*options, *arguments])
    # Python's last look for garbage, among all that torch has made, takes a second of each test.
    gc.freeze()
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
