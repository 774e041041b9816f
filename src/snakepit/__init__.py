"""Snakepit runs machine-learning jobs on the machines people already have."""

__version__ = "0.1.0"
