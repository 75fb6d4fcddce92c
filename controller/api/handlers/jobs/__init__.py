"""Routes for jobs: submit, show, change, bulk orders, logs, commands in jobs, explain and what-if."""
