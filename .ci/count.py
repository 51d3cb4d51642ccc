"""Adds up the JUnit reports of a finished `bazel test` and prints `N passed, N failed`."""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def count(reports: Path) -> tuple[int, int]:
    """Returns (passed, failed) test cases below bazel-testlogs."""
    passed = failed = 0
    for report in sorted(reports.rglob("test.xml")):
        for case in ElementTree.parse(report).iter("testcase"):
            bad = case.find("failure") is not None or case.find("error") is not None
            failed += bad
            passed += not bad
    return passed, failed


def main() -> int:
    """Returns 1 if a test failed, none ran, or Bazel itself ended with an error."""
    status = int(sys.argv[1])
    passed, failed = count(Path("bazel-testlogs"))
    if status and not failed:
        # A build error or a time-out leaves no failing case behind.
        failed = 1
    print(f"{passed} passed, {failed} failed")
    return 1 if status or failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
