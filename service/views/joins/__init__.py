"""Structures that maintain a view's rows, behind one `protocol`: a module per kind of structure; `making` chooses by the plan."""
