"""``python -m privcalc.attacks``: plant every bug, attack it, print the table; exit status 1 if one is not caught."""

from __future__ import annotations

import sys

from privcalc.attacks.bugs import table

if __name__ == "__main__":
    text, good = table()
    print(text)
    sys.exit(0 if good else 1)
