"""What operators do with the tables of effects: install, verify and prune them."""
