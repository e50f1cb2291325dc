"""Runs tools and model calls outside the runner's thread. Each has one outcome, by its deadline."""
