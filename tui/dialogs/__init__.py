"""Dialogs that open above a view: confirmations, forms, menus, help."""
