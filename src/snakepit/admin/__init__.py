"""The `snakepit` command: serve, init, doctor and the other things an admin does."""
