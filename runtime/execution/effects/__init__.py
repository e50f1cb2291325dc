"""Effects: tools and models are called outside the runner's thread, and each ends in one outcome by its deadline."""
