"""The `pit` command."""
