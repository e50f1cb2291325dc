"""Hashes passwords as Django does."""

from django.contrib.auth.hashers import PBKDF2PasswordHasher


class Hasher(PBKDF2PasswordHasher):
    """Keeps a stored password as it was signed; only a change of the password makes one with more iterations."""

    def must_update(self, encoded: str) -> bool:
        return False
