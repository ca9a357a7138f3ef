"""The page in a real browser: it draws, answers to pointer and keys, and asks for nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import chromium, requests, set_width
from families import matrix
from frostline.analysis import VIEWS
from frostline.report.chapter import Chapter
from frostline.report.formats.html import page

from .chapters import alone, make_chapter, make_finding
from .comparisons import make_comparison_chapter, make_probes, sized

ARTEFACTS = Path(os.environ.get("FROSTLINE_ARTEFACTS", "artefacts"))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of one curve, of six, and of curves of two sizes with a comparison."""
    made = tmp_path_factory.mktemp("pages")
    (made / "one.html").write_text(page([make_chapter()]), encoding="utf-8")
    many = [make_chapter(task=task, model=model) for task in ("cola", "sst2", "rte") for model in ("bert", "roberta")]
    (made / "many.html").write_text(page(many), encoding="utf-8")
    mixed: list[Chapter] = [sized(768, 0.05), sized(8000), make_comparison_chapter()]
    (made / "mixed.html").write_text(page(mixed), encoding="utf-8")
    probed = [make_chapter().replace(probes=make_probes())]
    (made / "probed.html").write_text(page(probed), encoding="utf-8")
    (made / "find.html").write_text(page(alone(make_finding())), encoding="utf-8")
    (made / "compare.html").write_text(page([make_comparison_chapter()]), encoding="utf-8")
    sizes = [sized(100, 0.08), sized(1000, 0.05), sized(8000)]
    (made / "sizes.html").write_text(page(sizes), encoding="utf-8")
    return made


@pytest.fixture
def one(driver: Any, folder: Path) -> Any:
    set_width(driver, 1440)
    _emulate(driver, "light")
    driver.get((folder / "one.html").as_uri())
    return driver


def _emulate(driver: Any, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def _shot(driver: Any, name: str) -> None:
    """Keeps a picture of the whole page, to be looked at."""
    ARTEFACTS.mkdir(exist_ok=True)
    height = driver.execute_script("return document.documentElement.scrollHeight")
    width = driver.execute_script("return innerWidth")
    set_width(driver, width, min(height, 6000))
    driver.save_screenshot(str(ARTEFACTS / f"{name}.png"))


@pytest.mark.parametrize("name", ["one", "many", "mixed"])
def test_no_console_error_and_no_request(driver: Any, folder: Path, name: str) -> None:
    requests(driver)
    driver.get_log("browser")
    address = (folder / f"{name}.html").as_uri()
    driver.get(address)
    assert [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    assert set(requests(driver)) == {address}


def test_a_request_would_be_seen(driver: Any, tmp_path: Path) -> None:
    page_that_asks = tmp_path / "asks.html"
    page_that_asks.write_text("<img src='http://localhost:9/x.png'><script>console.error('oh')</script>")
    driver.get_log("browser")
    driver.get(page_that_asks.as_uri())
    assert "http://localhost:9/x.png" in requests(driver)
    assert any("oh" in entry["message"] for entry in driver.get_log("browser"))


def test_charts_are_drawn_with_their_marks(one: Any) -> None:
    chapter = make_chapter()
    count = "return document.querySelectorAll('[data-view=score] .mark-symbol path').length"
    n_seeds = sum(len(point.scores) for point in chapter.curve.points)
    n_rings = 1
    assert one.execute_script(count) == n_seeds + len(chapter.curve.points) + n_rings
    box = (
        "const b = document.querySelector('[data-view=score] svg').getBoundingClientRect(); return [b.width, b.height]"
    )
    width, height = one.execute_script(box)
    assert width > 600
    assert height > 250


def test_colours_come_from_the_page(one: Any) -> None:
    script = (
        "return [...document.querySelectorAll('[data-view=score] .mark-symbol path')]"
        ".map((mark) => getComputedStyle(mark).fill)"
    )
    assert "rgb(11, 110, 153)" in one.execute_script(script)
    _emulate(one, "dark")
    assert "rgb(92, 195, 238)" in one.execute_script(script)


def test_pointing_at_a_mark_tells_its_value(one: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    point = make_chapter().curve.points[1]
    mark = one.find_element(By.CSS_SELECTOR, f"[data-view=score] path[aria-label^='{point.n_frozen} frozen: ']")
    ActionChains(one).move_to_element(mark).perform()
    tip = one.find_element(By.CSS_SELECTOR, ".tip")
    assert tip.value_of_css_property("visibility") == "visible"
    assert tip.text == mark.get_attribute("aria-label")
    assert f"{point.mean:.3f}" in tip.text
    ActionChains(one).move_to_element(one.find_element(By.TAG_NAME, "h1")).perform()
    assert tip.value_of_css_property("visibility") == "hidden"


def test_keys_reach_the_marks_too(one: Any) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    chosen = one.find_element(By.CSS_SELECTOR, "#curve input:checked")
    chosen.send_keys(Keys.TAB)  # the scroll box of the chart
    for _ in range(3):
        one.switch_to.active_element.send_keys(Keys.TAB)
        if one.switch_to.active_element.tag_name == "path":
            break
    said = one.switch_to.active_element.get_attribute("aria-label")
    tip = one.find_element(By.CSS_SELECTOR, ".tip")
    assert "frozen" in said
    assert (tip.value_of_css_property("visibility"), tip.text) == ("visible", said)


def test_switches_show_one_view_at_a_time(one: Any) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    shown = (
        "return [...document.querySelectorAll('#curve .view')].filter((v) => v.offsetParent).map((v) => v.dataset.view)"
    )
    assert one.execute_script(shown) == ["score"]
    heights = set()
    for view in VIEWS:
        one.find_element(By.CSS_SELECTOR, f"#curve input[value={view}] + span").click()
        assert one.execute_script(shown) == [view]
        heights.add(
            one.execute_script("return document.querySelector('#points').getBoundingClientRect().top + scrollY")
        )
    assert max(heights) - min(heights) < 40, "what is below does not jump"
    chosen = one.find_element(By.CSS_SELECTOR, "#curve input:checked")
    chosen.send_keys(Keys.ARROW_LEFT)
    assert one.execute_script(shown) == [VIEWS[-2]]


def test_the_table_of_runs_sorts_and_filters(one: Any) -> None:
    from selenium.webdriver.common.by import By

    column = (
        "return [...document.querySelectorAll('.sortable tbody tr:not([hidden])')].map((r) => r.cells[4].textContent)"
    )
    head = one.find_elements(By.CSS_SELECTOR, ".sortable th button")[4]
    assert head.text == "score"
    head.click()
    ascending = [float(cell) for cell in one.execute_script(column)]
    assert ascending == sorted(ascending)
    head.click()
    assert [float(cell) for cell in one.execute_script(column)] == sorted(ascending, reverse=True)
    sorted_by = one.find_element(By.CSS_SELECTOR, ".sortable th[aria-sort]")
    assert sorted_by.get_attribute("aria-sort") == "descending"
    field = one.find_element(By.ID, "runs-filter")
    field.send_keys("freeze:4")
    kept = one.execute_script(column)
    wanted = [run for run in make_chapter().runs if run.strategy == "freeze:4"]
    assert len(kept) == len(wanted) > 0
    assert one.find_element(By.ID, "runs-count").text == f"{len(wanted)} of {len(ascending)}"
    field.clear()
    field.send_keys("nothing like it")
    assert one.execute_script(column) == []


# `make test` does every page on a phone in one of the two schemes, and one page on a screen.
@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    matrix(
        ("one", "many", "mixed", "probed"),
        (360, 1440),
        ("light", "dark"),
        is_sample=lambda name, width, scheme: (
            (width, scheme) == (360, "dark" if name in ("one", "mixed") else "light")
            or (name, width, scheme) == ("mixed", 1440, "light")
        ),
    ),
)
def test_it_fits_the_screen(driver: Any, folder: Path, name: str, width: int, scheme: str) -> None:
    set_width(driver, width)
    _emulate(driver, scheme)
    driver.get((folder / f"{name}.html").as_uri())
    wide = "return document.documentElement.scrollWidth"
    assert driver.execute_script(wide) <= width
    driver.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert driver.execute_script(wide) <= width
    _shot(driver, f"page-{name}-{width}-{scheme}")


CUT = """
return [...document.querySelectorAll(".scroll, .panels, table, svg")]
  .filter((box) => box.offsetParent !== null || box.tagName === "svg")
  .filter((box) => box.scrollWidth > box.clientWidth + 1 || box.getBoundingClientRect().right > innerWidth + 1)
  .map((box) => `${box.tagName} ${box.className.baseVal ?? box.className} ${box.getAttribute("aria-label") ?? ""}`);
"""


@pytest.mark.parametrize(
    ("name", "width"),
    matrix(
        ("one", "find", "compare", "sizes", "many"),
        (400, 1280),
        is_sample=lambda name, width: width == 400 or name == "compare",
    ),
)
def test_nothing_is_cut_and_nothing_scrolls_sideways(driver: Any, folder: Path, name: str, width: int) -> None:
    set_width(driver, width)
    _emulate(driver, "light")
    driver.get((folder / f"{name}.html").as_uri())
    driver.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert driver.execute_script(CUT) == []
    _shot(driver, f"fits-{name}-{width}")


def test_a_box_that_is_cut_would_be_seen(driver: Any, folder: Path) -> None:
    set_width(driver, 400)
    driver.get((folder / "one.html").as_uri())
    driver.execute_script("document.querySelector('table').style.minWidth = '900px'")
    assert driver.execute_script(CUT) != []


LABELS = """
const shared = (p, q) => [
  Math.min(p.right, q.right) - Math.max(p.left, q.left), Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top),
];
return [...document.querySelectorAll("#strategies .view")].map((view) => {
  view.hidden = false;
  const nodes = [...view.querySelectorAll(".mark-text.role-mark text")];
  const boxes = nodes.map((node) => [node.textContent, node.getBoundingClientRect()]);
  const pairs = boxes.flatMap(([a, p], at) => boxes.slice(at + 1).map(([b, q]) => [a + " / " + b, ...shared(p, q)]));
  return [boxes.length, pairs.filter(([, across, down]) => across > 1 && down > 3).map(([names]) => names)];
});
"""


def test_the_names_of_twelve_strategies_do_not_collide(driver: Any, folder: Path) -> None:
    set_width(driver, 1440)
    driver.get((folder / "mixed.html").as_uri())
    assert driver.execute_script(LABELS) == [[12, []]] * 3


CONTRAST = """
const light = (c) => { const v = c / 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
const numbers = (s) => s.match(/[\\d.]+/g).map(Number);
const luminance = (s) => { const [r, g, b] = numbers(s).map(light); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const ground = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor, parts = numbers(colour);
    if (parts.length < 4 || parts[3] > 0) return colour;
  }
  return "rgb(255, 255, 255)";
};
document.querySelectorAll("details").forEach((d) => { d.open = true; });
const found = [];
for (const node of document.querySelectorAll("body *")) {
  const own = [...node.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim());
  if (!own || ["SCRIPT", "STYLE"].includes(node.tagName) || !node.getClientRects().length) continue;
  const style = getComputedStyle(node);
  const colour = node.closest("svg") ? style.fill : style.color;
  if (colour === "none") continue;
  const [a, b] = [luminance(colour), luminance(ground(node))].sort((x, y) => y - x);
  found.push([(a + 0.05) / (b + 0.05), node.tagName + ": " + node.textContent.trim().slice(0, 40), colour]);
}
return found;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(one: Any, scheme: str) -> None:
    _emulate(one, scheme)
    found = one.execute_script(CONTRAST)
    assert len(found) > 100
    assert [entry for entry in found if entry[0] < 4.5] == []


def test_nothing_moves_while_it_loads(driver: Any, folder: Path) -> None:
    driver.get((folder / "many.html").as_uri())
    script = """
    const done = arguments[0]; let moved = 0;
    new PerformanceObserver((list) => { for (const e of list.getEntries()) moved += e.value; })
      .observe({ type: "layout-shift", buffered: true });
    setTimeout(() => done(moved), 300);
    """
    assert driver.execute_async_script(script) < 0.01


def test_it_prints(one: Any) -> None:
    import base64

    pdf = base64.b64decode(one.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert pdf.startswith(b"%PDF")
    ARTEFACTS.mkdir(exist_ok=True)
    (ARTEFACTS / "page-one.pdf").write_bytes(pdf)


def test_evil_names_do_no_harm(driver: Any, tmp_path: Path) -> None:
    evil = (
        "<script>document.title='owned'</script>\"'><img src=x onerror=\"document.title='owned'\">👩‍🔬" + "x" * 10_000
    )
    chapter = make_chapter(task=evil, model=f"</style></script>{evil}", warnings=(evil,), command=evil)
    path = tmp_path / "evil.html"
    path.write_text(page([chapter]), encoding="utf-8")
    set_width(driver, 360)
    requests(driver)
    driver.get(path.as_uri())
    assert "owned" not in driver.title.split("\u0000")[0][:5]
    assert driver.execute_script("return document.querySelectorAll('img').length") == 0
    assert driver.execute_script("return document.querySelectorAll('script').length") == 1
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 360
    assert set(requests(driver)) == {path.as_uri()}
