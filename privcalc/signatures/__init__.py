"""Ed25519 signatures of certificates and ledgers, and the keys for them. Need the extra ``signatures``.

    privcalc key KEY   ->   privcalc sign FILE --key KEY   ->   privcalc verify FILE --key KEY.pub
                            privcalc revoke CERT --key KEY --reason …   ->   verify and show say so

What a signature shows, and what it cannot: ``proofs/signatures.md``.
"""

from privcalc.signatures.keys import fingerprint, generate, private_key, public_key
from privcalc.signatures.seal import Signature, check, revoke, revokes, sign

__all__ = ["Signature", "check", "fingerprint", "generate", "private_key", "public_key", "revoke", "revokes", "sign"]
