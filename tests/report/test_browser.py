"""The page in a real browser: every plot is drawn, nothing is complained of, nothing runs off a phone's screen."""

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from autotune.report.page import page
from tests.report.builders import whole_night
from tests.report.test_page import PLOTS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
)
LIMIT_S = 100.0

# Looks at what is laid out, sorts the table by its fifth column, and leaves what it saw in the page.
PROBE = """
<script>
window.addEventListener("load", function () {
  const boxes = {};
  document.querySelectorAll("[data-plot]").forEach(function (plot) {
    const box = plot.querySelector("svg").getBoundingClientRect();
    boxes[plot.dataset.plot] = [Math.round(box.width), Math.round(box.height)];
  });
  const column = 3;
  const head = document.querySelectorAll("#trials th")[column];
  head.querySelector("button").click();
  head.querySelector("button").click();
  const scores = Array.from(document.querySelectorAll("#trials tbody tr")).map(function (row) {
    return row.cells[column].dataset.value;
  });
  const seen = {
    boxes: boxes, scores: scores, sorted: head.getAttribute("aria-sort"),
    over: document.documentElement.scrollWidth - window.innerWidth, width: window.innerWidth,
    ink: getComputedStyle(document.body).color, back: getComputedStyle(document.body).backgroundColor
  };
  const mark = document.createElement("output");
  mark.id = "seen";
  mark.textContent = JSON.stringify(seen);
  document.body.appendChild(mark);
});
</script>
"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")


def opened(folder: Path, width: int, *flags: str) -> tuple[dict[str, Any], list[str]]:
    """What the probe saw in a window of this width, and what the console said."""
    file = folder / "report.html"
    file.write_text(page(whole_night()).replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    command = [str(CHROMIUM), *FLAGS, *flags, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},900"]
    ran = subprocess.run(
        [*command, "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
        env={**os.environ, "HOME": str(folder)},
    )
    found = re.search(r'<output id="seen">(.*?)</output>', ran.stdout)
    assert found, ran.stdout[-2000:]
    return json.loads(unescape(found[1])), [line for line in ran.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("width", "widest"), [(1280, 1280), (390, 620)], ids=["desktop", "phone"])
def test_every_plot_is_there(tmp_path: Path, width: int, widest: int) -> None:
    """All plots have a size, the page is not wider than the window, and the console is silent."""
    seen, console = opened(tmp_path, width)
    assert console == []
    assert seen["boxes"].keys() == PLOTS
    for name, (wide, high) in seen["boxes"].items():
        assert 150 < wide < widest, name
        assert high > 50, name
    assert seen["width"] <= widest
    assert seen["over"] <= 0


@pytest.mark.timeout(240)
def test_the_table_sorts(tmp_path: Path) -> None:
    """Twice on a heading sorts downwards, with the trials that have no score at the end."""
    seen, _ = opened(tmp_path, 1280)
    scores = [float(text) for text in seen["scores"] if text]
    assert seen["sorted"] == "descending"
    assert scores == sorted(scores, reverse=True)
    assert [bool(text) for text in seen["scores"]] == [True] * 8 + [False] * 4


@pytest.mark.timeout(240)
def test_dark_follows_the_reader(tmp_path: Path) -> None:
    """With a dark setting the ground is dark and the ink light."""
    light, _ = opened(tmp_path, 1280)
    dark, _ = opened(tmp_path, 1280, "--blink-settings=preferredColorScheme=0")
    assert brightness(light["back"]) > brightness(light["ink"])
    assert brightness(dark["back"]) < brightness(dark["ink"])


def brightness(colour: str) -> int:
    return sum(map(int, re.findall(r"\d+", colour)[:3]))
