"""``python -m benchmarks.learners``."""

import sys

from benchmarks.learners.run import main

sys.exit(main())
