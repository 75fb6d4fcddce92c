"""Built-in filters, scorers and orders, loaded like anybody else's."""
