"""All groups of 3 to 8 intervals of one set that share a point, maintained under updates (from Tao and Yi, *Intersection Joins
under Updates*, section 6). Start with `tree.CliqueTree`."""
