"""The views, such as the list of jobs: one module for each view."""
