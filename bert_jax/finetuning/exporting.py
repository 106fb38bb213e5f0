"""Whether a fine-tuned model can be exported, and the head that is."""

from collections.abc import Sequence
from typing import Any

from ml_collections import config_dict

from bert_jax import config as config_lib
from bert_jax.finetuning import completion
from bert_jax.inference import fine_tuned
from bert_jax.interop import hf_export
from bert_jax.model import classifier


def make_head(
  config: config_dict.ConfigDict,
  params: dict[str, Any],
  labels: Sequence[str],
  columns: Sequence[str],
  spans: classifier.Spans | None = None,
) -> classifier.Head:
  """Returns the head of a run's parameters.

  Args:
    config: the experiment.
    params: trained parameters.
    labels: names of the classes; empty for a number.
    columns: the text's column, and that of the second text of a pair.
    spans: how answers are found, if that is the task.
  """
  return classifier.Head(
    params['classifier']['kernel'],
    params['classifier']['bias'],
    tuple(labels),
    completion.find_max_length(config),
    tuple(columns),
    task=config.task,
    bilstm=params.get('bilstm'),
    form=config.finetuning.form,
    spans=spans,
  )


def find_problem(
  config: config_dict.ConfigDict, head: classifier.Head
) -> str | None:
  """Returns why a run's model cannot be exported; None if it can."""
  if config.finetuning.features != fine_tuned.NO_FEATURES:
    return (
      'only a head was trained, on features of frozen models, and transformers '
      'has no class for it'
    )
  return hf_export.find_problem(config_lib.model_config(config), head)
