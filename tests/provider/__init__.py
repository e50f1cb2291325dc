"""A model provider on loopback that speaks the chat-completions protocol and plays the scripted models.

Start it as a process with `python -m tests.provider [FAULT,…]`; it prints its base URL and serves until
its standard input ends.
"""
