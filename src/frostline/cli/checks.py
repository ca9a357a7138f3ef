"""How the commands that check stored files show what they found, and the exit code they end with."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from frostline.cli.flags import print_json, say
from frostline.errors import EXIT_DATA
from frostline.report.numbers import counted
from frostline.storage.findings import Finding


def end_check(
    folder: str, n_checked: str, findings: Sequence[Finding], warnings: Sequence[str] = (), *, as_json: bool
) -> None:
    """Prints what a check found; ends with exit code 3 if anything is wrong and not repaired.

    Args:
        folder: the folder that was checked.
        n_checked: what was looked at, e.g. "12 arrays".
        findings: what is wrong.
        warnings: what is not wrong, but worth knowing.
        as_json: as JSON, not as lines.
    """
    n_wrong = sum(not finding.is_repaired for finding in findings)
    if as_json:
        found = [finding.to_json() for finding in findings]
        print_json({"folder": folder, "checked": n_checked, "findings": found, "warnings": list(warnings)})
    else:
        for finding in findings:
            repaired = " (repaired)" if finding.is_repaired else ""
            say(f"{finding.what}: {finding.path}: {finding.why}{repaired}")
        for warning in warnings:
            say(f"warning: {warning}")
        say(f"{folder}: {n_checked} checked, {counted(n_wrong, 'problem') if n_wrong else 'nothing wrong'}")
    if n_wrong:
        raise typer.Exit(EXIT_DATA)
