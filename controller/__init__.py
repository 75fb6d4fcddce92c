"""The daemon, which holds the queue and decides which job starts when and where."""
