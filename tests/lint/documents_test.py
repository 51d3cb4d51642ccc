"""Links of the documents lead to files that are there, and to headings that are in them."""

import re
from pathlib import Path

import pytest

from tests.lint import workspace

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_DOCUMENTS = [str(file.relative_to(workspace.root())) for file in workspace.files(".md")]


def _prose(document: Path) -> str:
    """Its text without blocks of code, in which # begins a comment."""
    return re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(document: Path) -> set[str]:
    """What a link may name behind #, as GitHub derives it from the headings."""
    headings = re.findall(r"^#+ (.+)$", _prose(document), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_there_are_documents() -> None:
    assert {"README.md", "docs/extract.md"} <= set(_DOCUMENTS)


@pytest.mark.parametrize("name", _DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    document = workspace.root() / name
    broken = []
    for link in _LINK.findall(_prose(document)):
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if not re.match(r"https?://", link) and (
            not target.exists() or (anchor and anchor not in anchors(target))
        ):
            broken.append(link)
    assert broken == []
