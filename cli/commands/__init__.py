"""The commands of corral, one module each."""
