"""The driver of an execution engine: looks at the engine, keeps the records of attempts, makes requests about
them, and answers the controller as an agent does.
"""
