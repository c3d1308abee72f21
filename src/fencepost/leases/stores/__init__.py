"""The lease stores, one file or folder each. Each documents its grade and what it does not survive."""
