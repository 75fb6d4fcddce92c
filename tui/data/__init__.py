"""Data behind the screens: the model, the feed from the controller, lists and filters."""
