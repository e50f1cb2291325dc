"""What an agent is, which hands it has, and how it talks to models."""
