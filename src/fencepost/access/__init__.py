"""Who may operate jobs: accounts, permissions, API tokens, logins. The layer between people and `Operations`."""
