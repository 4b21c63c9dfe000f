"""HTTP, one module per resource: the parameters and responses of each path. `app` puts all of them behind one gate; `context` is what they
share."""
