"""The life of a job between submit and end: dependencies, gangs, timers, node loss and restarts."""
