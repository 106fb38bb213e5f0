"""One page on one run or more, to look at: `python -m bert_jax.report`."""
