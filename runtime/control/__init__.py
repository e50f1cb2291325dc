"""What people may do to a run, with the order in which it is refused, and the same without asking who."""
