"""Doing: the ways processes are run on nodes."""
