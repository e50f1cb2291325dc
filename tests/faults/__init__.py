"""Processes die at every point and at random moments; nothing may be repeated and nothing lost."""
