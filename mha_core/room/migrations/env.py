"""Alembic runs this for each change of the schema, in the transaction of `schema.upgrade`."""

from alembic import context

from mha_core.room.schema import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
context.run_migrations()
