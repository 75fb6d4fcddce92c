"""The controller: the process that keeps the queue and decides which job starts when and on which nodes."""
