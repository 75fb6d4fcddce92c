"""Routes for jobs: submit, show, change, bulk actions, output, commands in running jobs, explain and
what-if."""
