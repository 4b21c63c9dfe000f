"""The JSON schemas of the bodies in the OpenAPI document, and their examples."""
