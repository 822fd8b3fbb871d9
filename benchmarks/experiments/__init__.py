"""One module a table of the paper: what to run, and one row of it."""
