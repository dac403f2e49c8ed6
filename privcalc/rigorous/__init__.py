"""Proofs of single claims in ball arithmetic: ``pc.prove``. Shares descriptions of mechanisms with the engine, and no numbers."""
