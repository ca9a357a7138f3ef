"""Tests of reports look at what is drawn."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _drawn(draws: None) -> None:
    """Draws the charts of each page."""
