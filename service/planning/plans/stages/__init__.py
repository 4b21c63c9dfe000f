"""Plans of what becomes of rows before they are the view's."""
