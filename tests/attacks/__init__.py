"""Whoever can write to the database tries to have something done that nobody approved."""
