"""Finishes a run that learnt to choose: scores, predictions, an export."""

from bert_jax.finetuning import outcome
from bert_jax.finetuning.choices import choose


def finish(run: outcome.Run):
  """Scores the splits with labels, writes predictions and exports the model."""
  outcome.leave(
    run,
    outcome.score(choose.METRICS, run),
    lambda new: outcome.write_tables(new, run),
    '.tsv',
    choose.list_columns(run.config),
  )
