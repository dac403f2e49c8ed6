"""One thread for each process of the tests.

``pytest -n auto`` has as many processes as cores, and threads of NumPy's and torch's would wait for each other. Libraries read
this when they are loaded, so that it is set here, before that, and passed on to the workers.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
