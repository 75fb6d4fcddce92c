"""The options of `corral submit`: one module for each subject, and a table of all options. A row of the table
defines a flag, its field of JobSpec and its help text.
"""
