"""Errata of five papers on learning with public data, each with a witness computed again (``proofs/ERRATA.md``).

    python -m proofs.errata            prints the table
    python -m proofs.errata --write    writes proofs/ERRATA.md

Nothing here is used for accounting; the witnesses do not use the engine.
"""

from proofs.errata.catalogue import ERRATA, Erratum, document, table

__all__ = ["ERRATA", "Erratum", "document", "table"]
