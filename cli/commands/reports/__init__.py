"""Commands that print reports: usage, events, accuracy of estimates."""
