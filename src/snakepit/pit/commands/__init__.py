"""The commands: one file for each, or for a close family."""
