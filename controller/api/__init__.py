"""HTTP on a unix socket."""
