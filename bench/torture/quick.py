"""The process that forks the disturbed commands: as that of the tests, but drawing charts is left out.

Charts take two thirds of a tiny command. What is left out belongs to other libraries, and no number depends on it; the
files with pictures are written as always.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))


def main() -> None:
    """Forks commands until the bench is gone."""
    import altair
    import vl_convert
    from transformers import conversion_mapping

    import forked_commands

    vars(altair.utils.schemapi)["validate_jsonschema"] = lambda *_, **__: None
    vars(vl_convert)["vegalite_to_svg"] = lambda _: '<svg xmlns="http://www.w3.org/2000/svg"/>'
    conversion_mapping.get_checkpoint_conversion_mapping("bert")  # the library computes it once per process
    faulthandler.register(signal.SIGUSR1, file=2)  # a command that is stuck says where
    forked_commands.main()


if __name__ == "__main__":
    main()
