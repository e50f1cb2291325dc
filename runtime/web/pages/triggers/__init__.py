"""The pages of schedules and triggers, and their forms."""
