"""How much is tested: PRIVCALC_SLOW=1 asks for all."""

import os

SLOW = os.environ.get("PRIVCALC_SLOW") == "1"
