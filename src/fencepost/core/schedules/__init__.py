"""The kinds of schedules, one file each, and what they are made of. The contract is `fencepost.core.schedule`."""
