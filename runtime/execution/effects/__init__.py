"""Effects: tools and models are called in threads and under deadlines, and each outcome is a value."""
