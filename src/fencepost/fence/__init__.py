"""Refusing stale tokens at the resource that is written."""
