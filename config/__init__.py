"""Connects the other packages: the only package that imports all of them."""
