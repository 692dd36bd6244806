"""The page in a real browser: every plot is drawn, nothing is complained of, nothing runs off a phone's screen."""

import json
import os
import re
import struct
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from autotune.report.facts import Facts
from autotune.report.page import page
from tests.needed import needs, program
from tests.report.builders import curved_night, drifting_night, whole_night
from tests.report.test_page import PLOTS, drawn

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
    "--hide-scrollbars",
    "--enable-logging=stderr",
)
DARK = "--blink-settings=preferredColorScheme=0"
LIMIT_S = 100.0
DESKTOP, PHONE = 1280, 390

# Looks at what is laid out, sorts the table by its fourth column, and tells the page around it what it saw.
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
  window.parent.postMessage(JSON.stringify({
    boxes: boxes, scores: scores, sorted: head.getAttribute("aria-sort"),
    over: document.documentElement.scrollWidth - window.innerWidth, width: window.innerWidth,
    ink: getComputedStyle(document.body).color, back: getComputedStyle(document.body).backgroundColor
  }), "*");
});
</script>
"""
# A window cannot be as narrow as a phone, a frame can.
FRAME = """<!doctype html><link rel="icon" href="data:,"><script>
window.addEventListener("message", function (event) {{
  const mark = document.createElement("output");
  mark.id = "seen";
  mark.textContent = event.data;
  document.body.appendChild(mark);
}});
</script><body style="margin:0"><iframe src="{file}" style="border:0;width:{width}px;height:900px"></iframe>"""

pytestmark = [needs("chromium", "chromium-browser", "google-chrome"), pytest.mark.timeout(240)]
every_night = pytest.mark.parametrize("night", [whole_night, curved_night, drifting_night], ids=lambda f: f.__name__)


def browser(folder: Path, target: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Chromium on a file, without a window; what the console says is in its standard error."""
    chromium = program("chromium", "chromium-browser", "google-chrome")
    return subprocess.run(
        [chromium, *FLAGS, *flags, f"--user-data-dir={folder / 'profile'}", target.as_uri()],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
        env={**os.environ, "HOME": str(folder)},
    )


def opened(folder: Path, night: Facts, width: int, *flags: str) -> tuple[dict[str, Any], list[str]]:
    """What the probe saw at this width, and what the console said."""
    file, frame = folder / "report.html", folder / "frame.html"
    file.write_text(page(night).replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    frame.write_text(FRAME.format(file=file.name, width=width), encoding="utf-8")
    ran = browser(folder, frame, f"--window-size={DESKTOP},900", "--virtual-time-budget=5000", *flags, "--dump-dom")
    found = re.search(r'<output id="seen">(.*?)</output>', ran.stdout)
    assert found, ran.stdout[-2000:]
    return json.loads(unescape(found[1])), [line for line in ran.stderr.splitlines() if "CONSOLE" in line]


@every_night
@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_every_plot_is_there(tmp_path: Path, night: Callable[[], Facts], width: int) -> None:
    """All plots have a size, the page is not wider than the screen, and the console is silent."""
    seen, console = opened(tmp_path, night(), width)
    assert console == []
    assert seen["boxes"].keys() == drawn(page(night()))
    assert night is not whole_night or seen["boxes"].keys() == PLOTS
    for name, (wide, high) in seen["boxes"].items():
        assert 150 < wide < max(width, 600), name
        assert high > 50, name
    assert seen["width"] == width
    assert seen["over"] <= 0


def test_the_table_sorts(tmp_path: Path) -> None:
    """Twice on a heading sorts downwards, with the trials that have no score at the end."""
    seen, _ = opened(tmp_path, whole_night(), DESKTOP)
    scores = [float(text) for text in seen["scores"] if text]
    assert seen["sorted"] == "descending"
    assert scores == sorted(scores, reverse=True)
    assert [bool(text) for text in seen["scores"]] == [True] * 8 + [False] * 4


def test_dark_follows_the_reader(tmp_path: Path) -> None:
    """With a dark setting the ground is dark and the ink light."""
    light, _ = opened(tmp_path, whole_night(), DESKTOP)
    dark, _ = opened(tmp_path, whole_night(), DESKTOP, DARK)
    assert brightness(light["back"]) > brightness(light["ink"])
    assert brightness(dark["back"]) < brightness(dark["ink"])


def brightness(colour: str) -> int:
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


@pytest.mark.parametrize(
    ("width", "flags"), [(DESKTOP, ()), (500, ()), (DESKTOP, (DARK,))], ids=["desktop", "narrow", "dark"]
)
def test_pictures_can_be_taken(tmp_path: Path, width: int, flags: tuple[str, ...]) -> None:
    """The page is painted, not only laid out: a picture of it has many colours' worth of content."""
    file, picture = tmp_path / "report.html", tmp_path / "picture.png"
    file.write_text(page(whole_night()), encoding="utf-8")
    browser(tmp_path, file, *flags, f"--window-size={width},3000", f"--screenshot={picture}")
    data = picture.read_bytes()
    assert struct.unpack(">II", data[16:24]) == (width, 3000)
    # A blank picture of this size is a few kilobytes.
    assert len(data) > 60_000
