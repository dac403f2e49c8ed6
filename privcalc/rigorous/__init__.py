"""Proofs of single claims in ball arithmetic: ``pc.prove``.

They share descriptions of mechanisms with the engine, and no numbers.
"""
