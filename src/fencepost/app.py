"""What users import: the application and its jobs."""
