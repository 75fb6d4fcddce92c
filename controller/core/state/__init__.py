"""The state of the cluster. The package also contains the changes of the state by events, and the database
rows in which the state is stored.
"""
