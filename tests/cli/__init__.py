"""The command line, as real processes on real stores."""
