"""The promises of the audit, tried: no fork under many writers, no change unseen, no act without its entry."""
