"""The pages of this room: doors that parse, check access, call one function and answer."""
