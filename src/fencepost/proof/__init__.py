"""Records what happened to a cluster under faults, and checks its promises. Used by simulation and chaos."""
