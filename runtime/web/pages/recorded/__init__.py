"""The pages about records: two runs side by side, and a run replayed with today's code."""
