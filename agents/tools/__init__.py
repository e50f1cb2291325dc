"""Tools that any agent may use."""
