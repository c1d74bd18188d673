"""A room: one lesson, one teacher, a class of students without accounts, and their answers in a database.

It needs the extra ``room``.
"""
