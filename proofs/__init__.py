"""Pages, and the code that keeps them true."""
