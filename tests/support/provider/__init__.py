"""A model provider on loopback that speaks the chat-completions protocol and plays the scripted models."""
