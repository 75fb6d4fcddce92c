"""The life of a job between submit and end: dependencies, gangs, due times, node loss and restarts."""
