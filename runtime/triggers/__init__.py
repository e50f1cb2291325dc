"""What starts runs without a person at the moment: schedules. Events and webhooks have their place here too."""
