"""Everything on one machine: the embedded servers, the processes, and what `make up` does with them."""
