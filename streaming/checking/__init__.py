"""`livejoin stream --check`: would this file run?"""
