"""The command ``fencepost``: thin commands over the library."""
