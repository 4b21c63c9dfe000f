"""What each field of the bodies means, for the OpenAPI document: units, bounds, defaults, and what null stands for."""
