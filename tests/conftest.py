"""Fixtures and the table of the lease contract."""

pytest_plugins = ["fencepost.testing.table"]
