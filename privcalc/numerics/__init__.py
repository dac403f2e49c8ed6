"""The numerical engine: every bound it returns is derived in ``proofs/engine.md``."""
