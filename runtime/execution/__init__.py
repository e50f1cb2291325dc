"""One worker process and its runs: it claims a run, advances it step by step, and releases it."""
