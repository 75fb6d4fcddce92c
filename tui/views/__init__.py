"""The views between header and footer, one module per view."""
