"""Plans of the stages between a join's rows and those of the view."""
