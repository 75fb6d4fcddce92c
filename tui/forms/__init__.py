"""The contents of the forms, without widgets: one module for each form."""
