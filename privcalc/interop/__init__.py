"""Other names of the modules in :mod:`privcalc.adapters`."""
