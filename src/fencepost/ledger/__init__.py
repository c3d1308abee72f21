"""The SQL database of schedules, runs and all that happened."""
