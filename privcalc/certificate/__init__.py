"""What anyone can check again."""

from privcalc.certificate.certificate import Certificate, certify

__all__ = ["Certificate", "certify"]
