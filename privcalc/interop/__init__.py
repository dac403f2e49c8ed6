"""Where users already are: thin adapters to other packages, each imported only by those who have the package."""
