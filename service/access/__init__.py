"""Who may do what: the access tokens of a data folder, the rights that each path needs, and the audit log."""
