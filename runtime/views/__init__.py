"""The pages of runs: doors that check access, read, and answer."""
