"""People, their rights and their decisions."""
