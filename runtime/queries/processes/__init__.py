"""What workers and the sweeper say of themselves: which are alive, and what they measured."""
