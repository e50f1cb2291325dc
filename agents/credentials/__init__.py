"""Credentials of tools: where a worker gets them when a call starts."""

from agents.credentials.providers import Credential, Environment, File, OAuth, Vault

__all__ = ["Credential", "Environment", "File", "OAuth", "Vault"]
