"""The table of all job options: one module for each subject. A row of the table defines a flag, its field of
JobSpec and its help text.
"""
