"""Hashes passwords as Django does."""

from django.contrib.auth.hashers import PBKDF2PasswordHasher


class Hasher(PBKDF2PasswordHasher):
    """Django's hasher, except that a login does not replace a stored hash, because the hash is signed."""

    def must_update(self, encoded: str) -> bool:
        """Return False: a stored hash is never replaced."""
        return False
