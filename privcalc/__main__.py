"""``python -m privcalc`` is the command line."""

import sys

from privcalc.cli.ask import main

sys.exit(main())
