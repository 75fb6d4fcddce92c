"""The view of one job: its tabs, the reason why it waits, its attempts, and the pages of its log."""
