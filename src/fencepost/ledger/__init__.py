"""The SQL database of schedules, runs and their history."""
