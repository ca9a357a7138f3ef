"""Tiny bundles over one trunk, and a server of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .served import Client, Toys, make_toys, serving


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Toys:
    """Bundles of several strategies, and their trunk."""
    return make_toys(tmp_path_factory.mktemp("toys"))


@pytest.fixture(scope="module")
def client(toys: Toys) -> Iterator[Client]:
    """Asks a server of all bundles."""
    with serving(toys) as (started, _):
        yield started
