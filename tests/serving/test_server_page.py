"""The page of a server in a real browser: type a text, see every task's answer and where it leaves the trunk."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import chromium, requests, set_width
from report.test_page_in_browser import CONTRAST

from .served import Client, Toys, serving

ARTEFACTS = Path(os.environ.get("FROSTLINE_ARTEFACTS", "artefacts"))
TEXT = "the film is good"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


def _typed(driver: Any, client: Client, text: str, second: str = "") -> None:
    """Opens the page, types, and waits for the answer."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    driver.get(client.address)
    if second:
        driver.find_element(By.ID, "second").send_keys(second)
    driver.find_element(By.ID, "text").send_keys(text)
    WebDriverWait(driver, 10).until(lambda _: "tokens" in driver.find_element(By.ID, "status").text)


def _card(driver: Any, task: str) -> Any:
    from selenium.webdriver.common.by import By

    return driver.find_element(By.CSS_SELECTOR, f"[data-task='{task}'].card")


def test_typing_shows_every_answer_and_its_layer(driver: Any, client: Client, toys: Toys) -> None:
    set_width(driver, 1280)
    requests(driver)
    driver.get_log("browser")
    _typed(driver, client, TEXT)
    (row,) = toys.probabilities("topic", TEXT)
    said = _card(driver, "topic").text
    assert f"class {row.argmax()}" in said
    assert f"{100 * row.max():.1f}%" in said
    assert "leaves after layer 1 of 3, then 2 layers of its own" in said
    assert f"{toys.probabilities('stars', TEXT)[0, 0]:.3f}" in _card(driver, "stars").text
    assert "shares storage" in _card(driver, "biased").text
    assert "it reads pairs" in _card(driver, "pairs").text
    buds = "return document.querySelectorAll('.bud').length"
    assert driver.execute_script(buds) == 1 + 2 + 1 + 3 + 1, "one per layer of a task's own"
    assert [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    asked = [address for address in requests(driver) if not address.startswith("data:")]
    assert {address.removeprefix(client.address) for address in asked} == {"/", "/v1/classify/combined"}


def test_pairs_are_answered_by_the_tasks_that_read_them(driver: Any, client: Client, toys: Toys) -> None:
    _typed(driver, client, TEXT, second="so bad")
    (row,) = toys.probabilities("pairs", TEXT, second="so bad")
    assert f"{100 * row.max():.1f}%" in _card(driver, "pairs").text
    assert "it reads texts" in _card(driver, "topic").text


def test_an_error_is_shown(driver: Any, client: Client) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    driver.get(client.address)
    field = driver.find_element(By.ID, "text")
    driver.execute_script("arguments[0].value = 'a\\u0000b'; arguments[0].dispatchEvent(new Event('input'))", field)
    WebDriverWait(driver, 10).until(lambda _: "NUL" in driver.find_element(By.ID, "status").text)
    assert driver.find_element(By.ID, "status").get_attribute("class") == "wrong"


def test_a_token_opens_the_page(driver: Any, toys: Toys, tmp_path: Path) -> None:
    token = "a-token-of-26-letters-or-so"
    (tmp_path / "tokens").write_text(token)
    with serving(toys, token_file=tmp_path / "tokens") as (client, _):
        _typed(driver, Client(client.address.replace("//", f"//me:{token}@")), TEXT)
        assert "class" in _card(driver, "topic").text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(driver: Any, client: Client, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    set_width(driver, 1280)
    _typed(driver, client, TEXT)
    time.sleep(1)  # until nothing moves
    found = driver.execute_script(CONTRAST)
    driver.get(f"{client.address}/docs")
    found += driver.execute_script(CONTRAST)
    assert len(found) > 100
    assert [entry for entry in found if entry[0] < 4.5] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_it_fits_the_screen(driver: Any, client: Client, width: int, scheme: str) -> None:
    set_width(driver, width)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    for path in ("/", "/docs"):
        if path == "/":
            _typed(driver, client, "was the plot not great and fine and so good")
        else:
            driver.get(client.address + path)
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width
        ARTEFACTS.mkdir(exist_ok=True)
        height = driver.execute_script("return document.documentElement.scrollHeight")
        set_width(driver, width, height)
        driver.save_screenshot(str(ARTEFACTS / f"serve{path.replace('/', '-')}-{width}-{scheme}.png"))
        set_width(driver, width)


def test_a_page_of_names_that_are_markup_is_harmless(driver: Any, toys: Toys, tmp_path: Path) -> None:
    evil = "</script><script>document.head.remove()</script><b>"
    with serving(toys, bundles=[f"{evil}={toys.folders[0]}", toys.folders[1]]) as (client, _):
        set_width(driver, 360)
        _typed(driver, client, TEXT)
        assert driver.title.startswith("2 tasks, one trunk")
        assert driver.execute_script("return document.querySelectorAll('script').length") == 2
        assert evil in driver.find_element("tag name", "body").text
