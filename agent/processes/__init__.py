"""The processes of attempts: finds, marks, signals and binds them, and runs commands as their user."""
