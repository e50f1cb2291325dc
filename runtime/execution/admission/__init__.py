"""Decides whether the next commands of a run may start: admission, gates, limits, versions and waits."""
