"""Checks of certificates are what is tested here: all claims are confirmed."""

import pytest


@pytest.fixture(autouse=True)
def checks(checks_here):
    """In this process."""
