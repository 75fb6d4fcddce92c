"""The state of the cluster. The package also has the changes that events make to the state, and the database
rows that store it.
"""
