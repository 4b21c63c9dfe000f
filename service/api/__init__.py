"""HTTP, one module per resource: the parameters and responses of each path. `app` puts them behind one gate; `context` is shared by all."""
