"""Many runs in one directory: a grid or a table of the paper, and the scores."""
