"""``python -m privcalc.attacks``: plant every bug, attack it, print the table; exit status 1 if one is not caught."""

from __future__ import annotations

import sys

from privcalc.attacks.bugs import table
from privcalc.terminal import command


@command("python -m privcalc.attacks")
def main() -> int:
    """Run the command; returns the exit status."""
    text, good = table()
    print(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
