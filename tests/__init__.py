"""The tests mirror the rooms; `cast` are the people in them, `stack` is the whole application."""
