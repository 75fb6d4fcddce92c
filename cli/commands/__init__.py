"""The subcommands of corral, one module for each."""
