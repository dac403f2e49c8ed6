"""privcalc: certified differential-privacy accounting.

    mechanism  ->  pair of distributions  ->  composition  ->  enclosure of ε, δ, β, μ

A mechanism describes one release, ``*`` repeats and ``+`` composes it, and a run answers questions with proved lower
and upper bounds. Start with :class:`Gaussian`, :class:`PoissonSampled` and :func:`noise_multiplier`.

The public names stand in ``__init__.pyi``, for type checkers and for the loader, which imports what is asked for.
"""

import lazy_loader

from privcalc.version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
