"""Compares recorded runs with the code and the prompts of today. Nothing is executed."""
