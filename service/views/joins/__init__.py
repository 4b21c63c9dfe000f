"""What keeps a view's rows, behind one `protocol`: a module a kind of structure; `making` chooses by the plan."""
