"""Run by Alembic: hands it the connection and transaction that `migrate` opened."""

from alembic import context

from snakepit.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
