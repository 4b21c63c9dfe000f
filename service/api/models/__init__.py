"""The models of bodies, from which the OpenAPI document is made, and their examples."""
