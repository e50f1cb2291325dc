"""A model provider on loopback that speaks the chat-completions protocol and plays the scripted models.

Start it as a process with `python -m tests.support.provider [FAULT,… [ABOUT [SHARE [SEED]]]]`; it prints its base URL,
serves until its standard input ends, and prints which faults have happened. ABOUT is a word of the conversations they
happen to; SHARE of all other requests fail with a 429, a 500 or a cut stream, the same ones for the same SEED.
"""
