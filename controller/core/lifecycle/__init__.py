"""What happens to a job between submit and end: dependencies, gangs, timers, node loss, restarts."""
