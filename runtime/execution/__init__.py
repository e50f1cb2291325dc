"""One worker process and the runs it works on: a run is claimed, taken step by step, and let go of."""
