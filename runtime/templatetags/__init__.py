"""Template tags that pages of every room use."""
