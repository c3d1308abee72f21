"""The command ``fencepost``: thin verbs over the library."""
