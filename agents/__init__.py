"""Agents: how authors define them, how models and tools are called, and their pages."""
