"""The table of all job options: one module for each subject. A row defines a flag, its field and its text."""
