"""Commands in a running job (exec, attach) and reading of logs."""
