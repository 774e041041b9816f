"""Alembic's environment and revisions; run by `snakepit.store.migrate`."""
