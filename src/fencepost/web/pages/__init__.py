"""The pages, one file per subject. Each has the routes of its subject, which `ALL_PAGES` puts together."""
