"""Access control: the access tokens of a data folder, the rights that each path requires, and the audit log."""
