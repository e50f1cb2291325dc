"""Runs everything on one machine: the embedded servers and the processes, for `make up` and `make manage`."""
