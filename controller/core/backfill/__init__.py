"""The scheduling pass: start jobs in order, reserve for the first, backfill the others."""
