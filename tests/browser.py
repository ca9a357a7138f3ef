"""A real Chromium for tests of pages: installed where it is missing and can be, else the tests are skipped."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)


def find_or_install() -> tuple[str, str]:
    """The paths of Chromium and its driver; the test is skipped where there is none and none can be installed."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        _install()
    found = shutil.which("chromium"), shutil.which("chromedriver")
    if found[0] is None or found[1] is None:
        pytest.skip("no Chromium here: install the packages chromium and chromium-driver to test pages")
    return found[0], found[1]


def _install() -> None:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": False}
    subprocess.run(["apt-get", "update"], **quiet)
    packages = ["chromium", "chromium-driver", "fonts-dejavu-core"]
    subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", *packages], **quiet)


@contextmanager
def chromium(profile: Path, *flags: str) -> Iterator[Any]:
    """A driver of a fresh Chromium that writes down what its console says and what it asks the network for."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    binary, driver = find_or_install()
    options = Options()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={profile}", *flags):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield started
    finally:
        started.quit()


def requests(driver: Any) -> list[str]:
    """The addresses asked for since the last call."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]


def set_width(driver: Any, width: int, height: int = 900) -> None:
    """The page as wide as a device; a window of its own cannot be narrower than 500 pixels."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
