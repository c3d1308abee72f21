"""Proof: what happened to a cluster under faults, and whether it kept the promises. For simulation and chaos alike."""
