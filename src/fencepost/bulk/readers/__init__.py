"""The readers that come with Fencepost, one module each."""
