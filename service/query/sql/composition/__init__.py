"""Queries within queries: WITH, subqueries and views, written out or stored, before anything of them is read."""
