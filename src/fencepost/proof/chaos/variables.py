"""The environment variables that configure the processes of chaos."""

FOLDER = "FENCEPOST_CHAOS_HISTORY"
NAME = "FENCEPOST_CHAOS_NAME"
LEDGER = "FENCEPOST_CHAOS_LEDGER"
LOCKS_URL = "FENCEPOST_CHAOS_LOCKS"
TTL = "FENCEPOST_CHAOS_TTL"
DEPLOY = "FENCEPOST_CHAOS_DEPLOY"  # which deploy of the application a node has; 1 by default
