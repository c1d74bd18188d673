"""A room: lessons for a class without accounts, the desk of its teacher, and the answers in a database.

It needs the extra ``room``.
"""
