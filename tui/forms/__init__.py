"""The forms without their widgets, one module for each kind of form."""
