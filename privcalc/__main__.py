"""``python -m privcalc`` is the command line."""

import sys

from privcalc.cli import main

sys.exit(main())
