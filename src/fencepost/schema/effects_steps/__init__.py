"""The migration steps of the tables of effects, for Alembic."""
