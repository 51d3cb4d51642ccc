"""The page holds all it shows, and shows what the store holds."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from eagle3.inspect import inspect
from eagle3.inspection.histogram import make_histogram
from eagle3.inspection.page import _logarithmic, render_page
from eagle3.inspection.preview import Span
from eagle3.inspection.report import InspectionReport, InspectionRequest, inspect_store
from eagle3.progress import Progress
from eagle3.store.reader import StoreReader
from tests.unit.store import stored
from tests.unit.store.stored import make_manifest, make_samples

SAMPLES = make_samples(60)


class Page(HTMLParser):
    """What stands in a page: its elements, with the text of titles and cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    stored.extract(tmp_path / "states", make_manifest(SAMPLES), SAMPLES)
    return tmp_path / "states"


@pytest.fixture
def report(store: Path) -> InspectionReport:
    request = InspectionRequest(store, False, False, None, None, 10**6)
    return inspect_store(request, Progress())


def test_the_page_is_whole_and_fetches_nothing(report: InspectionReport) -> None:
    page = Page(render_page(report, [Span(True, 1, "yes")]))
    assert page.open == []
    attributes = {name for _, attributes in page.elements for name in attributes}
    assert not attributes & {"src", "href", "srcset", "data", "action"}
    assert not {tag for tag, _ in page.elements} & {"script", "link", "iframe", "img"}


def test_every_sample_is_in_the_histogram(report: InspectionReport) -> None:
    page = Page(render_page(report, []))
    bars = [text for text in page.texts["title"] if " tokens: " in text]
    assert sum(int(bar.rpartition(": ")[2]) for bar in bars) == 60
    assert bars[0] == "1 to 2 tokens: 2"


def test_each_capture_point_has_its_norms(report: InspectionReport) -> None:
    page = Page(render_page(report, []))
    for point in report.points:
        assert any(
            text.startswith(f"after {point.capture_point} layers: median {point.norm_median:.4g}, ")
            for text in page.texts["title"]
        )
        assert f"{point.norm_max:.4g}" in page.texts["td"]


def test_nine_tenths_of_the_norms_lie_between_the_two_that_are_told(
    store: Path, report: InspectionReport
) -> None:
    reader = StoreReader(store)
    states = [reader.read(sample_id)[1] for sample_id in reader.ids]
    norms_TL = torch.cat(states).float().norm(dim=2)
    for layer, point in enumerate(report.points):
        within_T = (norms_TL[:, layer] >= point.norm_p05) & (norms_TL[:, layer] <= point.norm_p95)
        assert float(within_T.float().mean()) == pytest.approx(0.9, abs=0.01)
        assert point.norm_min < point.norm_p05 < point.norm_median < point.norm_p95 < point.norm_max


def test_what_the_store_holds_is_told(report: InspectionReport) -> None:
    page = Page(render_page(report, []))
    assert "60 (complete), 1,830 tokens" in page.texts["td"]
    [manifest] = page.texts["pre"]
    assert json.loads(manifest)["capture_points"] == [3, 1]


def test_text_cannot_break_out_of_the_page(report: InspectionReport) -> None:
    text = render_page(report, [Span(False, 1, "</pre><script>"), Span(True, 1, "a & b")])
    page = Page(text)
    assert ("span", {"class": "supervised"}) in page.elements
    assert "<script>" not in text
    assert page.texts["span"] == ["</pre><script>", "a & b"]


def test_the_command_writes_the_page_beside_its_tables(store: Path) -> None:
    environment = {"BUILD_WORKING_DIRECTORY": str(store.parent)}
    runner = CliRunner(env=environment)
    result = runner.invoke(inspect, ["states", "--html", "states.html"])
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("where ")
    assert "<title>states</title>" in (store.parent / "states.html").read_text()
    refused = runner.invoke(inspect, ["states", "--html", "none/states.html"])
    assert refused.exit_code == 4
    assert "none/states.html: No such file or directory; give another --html" in refused.stderr


def test_bars_cover_all_lengths() -> None:
    histogram = make_histogram([1, 48, 49, 100])
    assert histogram.edges[:2] == (1, 4)
    assert histogram.edges[-1] > 100
    assert sum(histogram.counts) == 4
    assert len(histogram.counts) <= 48
    assert make_histogram([]).counts == ()
    assert make_histogram([5]).counts == (0, 0, 0, 0, 1)


def test_the_axis_is_logarithmic_and_takes_zeros() -> None:
    place = _logarithmic(1.0, 100.0)
    assert [round(place(value)) for value in (1, 10, 100)] == [240, 120, 0]
    assert _logarithmic(0.0, 0.0)(0.0) == 240
    assert _logarithmic(3.0, 3.0)(3.0) == 240
