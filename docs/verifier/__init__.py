"""A page that checks certificates, and asks the network for nothing: ``python -m docs.verifier OUT``."""
