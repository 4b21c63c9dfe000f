"""Every 3 to 8 intervals of one set that share a point, kept live (from Tao and Yi, *Intersection Joins under Updates*, section 6). Start
with `tree.CliqueTree`."""
