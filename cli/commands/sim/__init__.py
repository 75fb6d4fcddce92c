"""The subcommands of corral sim, which run the scheduler in simulated time."""
