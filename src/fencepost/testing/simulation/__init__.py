"""Whole clusters on virtual time."""
