"""HTTP, one noun a module: what each path takes and answers. `app` puts them behind one gate; `context` is what they share."""
