"""Per-sample audits: what each person's record really cost, and what may be said about it."""
