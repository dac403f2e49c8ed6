"""``python -m benchmarks.accountants``."""

import sys

from benchmarks.accountants.run import main

sys.exit(main())
