"""One module per table of the paper: what to run, and one row of it."""
