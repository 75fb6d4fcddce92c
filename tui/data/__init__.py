"""The data that the screens show: the model, the feed from the controller, lists and filters."""
