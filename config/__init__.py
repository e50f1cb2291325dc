"""The fuse box: the only room that knows every other."""
