"""What the documents say is tried, or looked up."""
