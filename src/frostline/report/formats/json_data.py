"""Chapters → JSON: the record of a single result; of several, everything that is known about each."""

from __future__ import annotations

import json
from collections.abc import Sequence

from frostline.report.chapter import Chapter


def json_text(chapters: Sequence[Chapter]) -> str:
    """The chapters as JSON text."""
    content = chapters[0].record.to_json() if len(chapters) == 1 else [chapter.to_json() for chapter in chapters]
    return json.dumps(content, indent=2, allow_nan=False) + "\n"
