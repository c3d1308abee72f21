"""The steps that bring a database of effects to this version, for Alembic."""
