"""The pages and the REST interface. They reach the ledger by `fencepost.access.authorized.Authorized` alone."""
