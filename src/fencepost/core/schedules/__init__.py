"""The kinds of schedules, one file each, and their parts. `fencepost.core.schedule` is their contract."""
