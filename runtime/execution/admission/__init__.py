"""Whether what a run wants next may start: admission, gates, limits, versions and waits."""
