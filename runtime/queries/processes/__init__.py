"""What each worker and the sweeper report: that they are alive, and their measurements."""
