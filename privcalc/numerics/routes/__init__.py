"""Routes from a composition to bounds of δ(ε); each can fail, none can be wrong."""
