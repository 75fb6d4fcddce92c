"""The state of the cluster. The package also has the changes of the state by events, and the database rows in
which the state is stored.
"""
