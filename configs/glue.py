"""A task of GLUE (arXiv 1810.04805, section 4.1), by the paper's recipe.

python -m bert_jax.main --config=configs/glue.py:stsb --workdir=DIR \\
  --config.init_from=MODEL --config.data.input=glue_data

cola, sst2, mrpc, stsb, qqp, mnli (with the diagnostics), qnli, rte or wnli, from
the folder that GLUE's download script writes. The paper: batches of 32, 3
epochs, the best on dev of the learning rates 5e-5, 4e-5, 3e-5 and 2e-5. BERT-Base
then gets on dev, depending on the seed: CoLA 56 to 60 (Matthews), SST-2 92, MRPC
89 (F1), STS-B 88 to 89, QQP 87 (F1), MNLI 84, QNLI 91, RTE 65 to 70.
"""

from bert_jax import config, errors
from bert_jax.finetuning.readers import glue


def get_config(arguments: str = 'rte'):
  name, _, rest = arguments.partition(',')
  c = config.finetuning()
  c.finetuning.glue = name
  c.data.input = 'glue_data'
  if name not in glue.TASKS:
    raise errors.UserError(
      f'glue.py:{name} is no task of GLUE; choose one of {", ".join(glue.TASKS)}.'
    )
  # So that preflight knows the shapes; a run takes them from the data.
  c.finetuning.outputs = len(glue.TASKS[name].labels) or 1
  return config.apply_arguments(c, rest)
