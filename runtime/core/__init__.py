"""The pure core: what a run is and how it changes; no clock, no randomness, no I/O."""
