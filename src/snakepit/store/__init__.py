"""Remembering: what was acknowledged, on disk."""
