"""The verbs as functions; the command line, the web and users call only this. Documented and stable.

Each function is a few lines: it reads its inputs through the pure packages and returns their values.
"""
