"""What a comparison looks like: as text, Markdown, JSON, and as a page opened in a real browser."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from patchkit.bench import html, view
from patchkit.bench.compare import compare
from patchkit.bench.medians import read_table
from patchkit.bench.model import Report, Run
from patchkit.bench.read import read_report
from patchkit.cli import main

CASE = Path(__file__).parents[1] / "cases" / "bench" / "arc-b70.md"

#: Every text of a chart must lie inside it and on no other text; the answer goes where --dump-dom shows it.
_LOOK = """<script>
const faults = [];
for (const svg of document.querySelectorAll("svg")) {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")].map(each => each.getBoundingClientRect());
  texts.forEach((box, index) => {
    if (box.width === 0 || box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1)
      faults.push("outside");
    texts.slice(index + 1).forEach(other => {
      if (box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom)
        faults.push("overlap");
    });
  });
}
if (document.documentElement.scrollWidth > window.innerWidth) faults.push("wider than the window");
document.body.dataset.look = faults.length ? faults.join(",") : "good " + document.querySelectorAll("svg").length;
</script>"""


def report(name: str, chance: random.Random, slower: float = 0.0) -> Report:
    runs = []
    for users in (1, 4, 16):
        for repetition in range(3):
            middle = 50 * users * (1 + slower) * (1 + chance.gauss(0, 0.02))
            times = tuple(middle * (1 + abs(chance.gauss(0, 0.1))) for _ in range(16))
            samples = {"output_tok_s": (9000 / middle,), "ttft_ms": times, "decode_ms": times}
            runs.append(Run("chat", users, repetition, samples))
    return Report(name, tuple(runs), {})


def comparison_view(before: str = "before", after: str = "after") -> view.View:
    chance = random.Random(1)
    return view.of_comparison(compare(report(before, chance), report(after, chance, 0.3)))


def browse(page: str, tmp_path: Path, *options: str) -> str:
    program = shutil.which("chromium")
    assert program is not None, "apt-get install chromium"
    file = tmp_path / "report.html"
    file.write_text(page)
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,1600", *options]
    command += [f"--user-data-dir={tmp_path / 'profile'}", file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.parametrize("size", ["1200,1600", "600,900"])
def test_a_browser_shows_every_chart_with_its_labels_apart(tmp_path: Path, size: str) -> None:
    shown = comparison_view()
    page = html.page(shown).replace("</body>", _LOOK + "</body>")
    dom = browse(page, tmp_path, f"--window-size={size}", "--dump-dom")
    look = re.search(r'data-look="([^"]*)"', dom)
    assert look is not None
    assert look[1] == f"good {len(shown.charts)}"


def test_a_browser_paints_both_sides_in_their_colours(tmp_path: Path) -> None:
    picture = tmp_path / "report.png"
    browse(html.page(view.of_medians(read_table(CASE))), tmp_path, f"--screenshot={picture}")
    with Image.open(picture) as image:
        colours = {colour for _, colour in image.convert("RGB").getcolors(maxcolors=1 << 20) or ()}
    assert (0x5B, 0x7F, 0xA6) in colours
    assert (0xC2, 0x57, 0x0C) in colours


def test_the_page_needs_nothing_from_outside_and_no_script() -> None:
    page = html.page(comparison_view())
    assert "http" not in page
    assert "<script" not in page
    assert "url(" not in page


def test_names_from_reports_are_text_not_markup(tmp_path: Path) -> None:
    evil = '<img src=x onerror="document.body.dataset.look=1">'
    page = html.page(comparison_view(evil, "b|c"))
    dom = browse(page, tmp_path, "--dump-dom")
    assert "data-look" not in dom.partition("<body")[2].partition(">")[0]
    assert "<img" not in dom
    text = view.markdown(comparison_view(evil, "b|c"))
    assert "<img" not in text
    assert "b\\|c" in text


def test_the_same_reports_give_the_same_page() -> None:
    assert html.page(comparison_view()) == html.page(comparison_view())


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["bench", "compare", *arguments])
    return int(stop.value.code or 0)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    chance = random.Random(1)
    names = []
    for name, slower in (("before", 0.0), ("after", 0.3)):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(report(name, chance, slower).as_json()))
        names.append(str(file))
    return names


@pytest.mark.parametrize("form", ["table", "markdown", "json", "html"])
def test_each_format_tells_every_row_with_its_verdict(
    files: list[str], form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*files, "--format", form) == 0
    text = capsys.readouterr().out
    assert text.count("WORSE") >= 12
    if form == "json":
        rows = json.loads(text)["comparison"]["rows"]
        assert len(rows) == 12
        assert rows[0]["interval"][0] < rows[0]["change"] < rows[0]["interval"][1]


def test_a_published_table_is_judged_and_its_differences_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(str(CASE)) == 0
    text = capsys.readouterr().out
    assert text.count("UNCLEAR") == 4
    assert "18 to the digit and 6 within rounding" in text


def test_the_page_can_be_written_to_a_file(files: list[str], tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    assert call(*files, "--format", "html", "-o", str(output)) == 0
    assert output.read_text().startswith("<!DOCTYPE html>")


def test_three_files_are_a_wrong_call(files: list[str]) -> None:
    assert call(*files, files[0]) == 2


def _serve_result(**more: object) -> dict[str, object]:
    """What ``vllm bench serve --save-result --save-detailed`` writes of two requests, as far as it is read."""
    return {
        "max_concurrency": 4,
        "output_throughput": 10.0,
        "ttfts": [0.1, 0.2],
        "itls": [[0.01], [0.02]],
        "output_lens": [2, 2],
        **more,
    }


def test_two_results_of_vllm_that_tell_no_scenario_are_compared_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "old.json", tmp_path / "new.json"]
    for file in files:
        file.write_text(json.dumps(_serve_result()))
    assert call(*map(str, files)) == 0
    assert "requests" in capsys.readouterr().out
    assert call(*map(str, files), "--scenario", "chat") == 0
    assert "chat" in capsys.readouterr().out


def test_one_report_alone_and_a_file_of_another_shape_are_wrong_calls_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "one.json"
    file.write_text(json.dumps(_serve_result()))
    assert call(str(file)) == 2
    assert "give two reports" in capsys.readouterr().err
    for text in ('{"a": 1}', "[1]", '[{"case": "x", "requests": [], "ranks": []}]', "3"):
        other = tmp_path / "other.json"
        other.write_text(text)
        assert call(str(file), str(other)) == 2
        told = capsys.readouterr().err
        assert "KeyError" not in told
        assert "max_concurrency, output_throughput" in told


def test_the_shape_of_a_report_in_the_docs_is_one_that_is_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/serving.md").read_text()
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (tmp_path / "r.json").write_text(example)
    report = read_report(tmp_path / "r.json")
    assert report.as_json() == json.loads(example)
