"""Routes from a composition to bounds of δ(ε); each can fail, none can be wrong.

Which is tried when is chosen in ``composition/ladder.py``.
"""
