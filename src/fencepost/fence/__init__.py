"""Fences: each refuses stale tokens at the resource that is written."""
