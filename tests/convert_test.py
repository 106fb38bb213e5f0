"""The command bert_jax.convert."""

import dataclasses
import os
import pathlib
import re
from unittest import mock

import numpy as np
import pytest

from bert_jax import convert, errors
from bert_jax.inference import source
from bert_jax.interop import hugging_face, rename
from bert_jax.weight_files import tf_checkpoint
from tests import commands, models
from tests.model import precision_test
from tests.weight_files import tf_files

PAGE = pathlib.Path(__file__).parents[1] / 'docs' / 'convert.md'


def run_main(path, target, *more):
  given = f'--from={path}', f'--to={target}', '--format=hf'
  commands.run(convert, *given, *more)


def all_bytes(path):
  """Returns the bytes of a file, or of those of a folder."""
  if os.path.isdir(path):
    names = sorted(os.listdir(path))
    return {name: all_bytes(os.path.join(path, name)) for name in names}
  with open(path, 'rb') as f:
    return f.read()


def test_a_folder_of_google_becomes_hugging_faces(tmp_path):
  google = tf_files.write_model(tmp_path / 'google', models.make_params())
  assert source.detect_kind(google) == 'google'
  run_main(google, tmp_path / 'hf')
  assert source.detect_kind(str(tmp_path / 'hf')) == 'hf'
  first = models.export_to(tmp_path / 'first')
  assert all_bytes(tmp_path / 'hf') == all_bytes(first)


@pytest.mark.parametrize(
  ('model', 'parts', 'architecture'),
  [
    (None, ['encoder', 'mlm', 'pooler', 'nsp'], 'BertForPreTraining'),
    ('pretraining', ['encoder', 'mlm', 'pooler', 'nsp'], 'BertForPreTraining'),
    ('mlm', ['encoder', 'mlm'], 'BertForMaskedLM'),
    ('encoder', ['encoder', 'pooler'], 'BertModel'),
  ],
)
def test_model_chooses_the_class_and_what_is_written(
  tmp_path, capsys, model, parts, architecture
):
  path = models.export_to(tmp_path / 'theirs')
  more = [f'--model={model}'] if model else []
  target = str(tmp_path / 'hf')
  run_main(path, target, *more)
  found = source.read(target)
  assert rename.list_parts(found.params) == parts
  assert found.report.left_over == []
  output = capsys.readouterr().out
  assert ('left out' in output) == (model in ('mlm', 'encoder'))
  config = all_bytes(tmp_path / 'hf')['config.json']
  assert architecture.encode() in config


def test_a_classifier_is_written_unless_another_model_is_named(
  tmp_path, monkeypatch, capsys
):
  loaded = source.read(models.export_to(tmp_path / 'hf'))
  written = mock.Mock()
  monkeypatch.setattr(hugging_face, 'export', written)
  monkeypatch.setattr(source, 'read', lambda *_: loaded._replace(head='a head'))
  for more, head in ((), 'a head'), (['--model=encoder'], None):
    run_main('there', 'here', *more)
    assert written.call_args.args[5] == head
  assert '(3): mlm, nsp, classifier' in capsys.readouterr().out


def test_a_head_that_is_not_there_is_not_made_up(tmp_path):
  path, target = str(tmp_path / 'source'), str(tmp_path / 'hf')
  params = rename.keep_parts(models.make_params(), ('pooler',))
  hugging_face.export(path, params, models.CONFIG, models.TOKENIZER)
  for model, lacking in (('pretraining', 'mlm and nsp'), ('mlm', 'mlm')):
    with pytest.raises(errors.UserError, match=f'lacks {lacking}, which'):
      run_main(path, target, f'--model={model}')
  assert os.listdir(tmp_path) == ['source']


def test_what_is_skipped_and_missing_is_printed(tmp_path, capsys):
  params = rename.keep_parts(models.make_params(), ('pooler', 'nsp'))
  path = tf_files.write_model(tmp_path / 'google', params)
  prefix = os.path.join(path, 'bert_model.ckpt')
  entries = tf_checkpoint.read_index(prefix)
  tensors = {name: tf_checkpoint.read(x) for name, x in entries.items()}
  slots = {f'{name}/adam_m': x for name, x in tensors.items()}
  more = {'output_bias': np.zeros(2, np.float32), 'global_step': np.int64(1)}
  tf_files.write_checkpoint(prefix, tensors | slots | more)
  run_main(prefix, tmp_path / 'hf')
  lines = capsys.readouterr().out.splitlines()
  assert lines == [
    f'wrote {tmp_path}/hf, from {prefix}',
    '  not in the source (5): cls/predictions/output_bias, '
    'cls/predictions/transform/LayerNorm/beta, '
    'cls/predictions/transform/LayerNorm/gamma, '
    'cls/predictions/transform/dense/bias, '
    'cls/predictions/transform/dense/kernel',
    '  in the source, but not used (1): output_bias',
    '  left out, as the model has no place for it (1): nsp',
    "  skipped, the optimizer's (42): bert/embeddings/LayerNorm/beta/adam_m, "
    'bert/embeddings/LayerNorm/gamma/adam_m, '
    'bert/embeddings/position_embeddings/adam_m and 39 more',
  ]


def test_activation_gives_a_model_the_gelu_of_google_but_no_other(
  tmp_path, capsys
):
  params, target = models.make_params(), str(tmp_path / 'tanh')
  for activation in ('gelu', 'relu'):
    config = dataclasses.replace(models.CONFIG, activation=activation)
    path = str(tmp_path / activation)
    hugging_face.export(path, params, config, models.TOKENIZER)
  run_main(tmp_path / 'gelu', target, '--activation=gelu_tanh')
  assert capsys.readouterr().out.splitlines()[1:] == [
    '  activation: gelu in the source, gelu_tanh as written (--activation)'
  ]
  again, config, *_ = hugging_face.read(target)
  assert config.activation == 'gelu_tanh'
  models.assert_same(again, params)
  with pytest.raises(errors.UserError, match='and the source has relu; leave'):
    run_main(tmp_path / 'relu', tmp_path / 'x', '--activation=gelu_tanh')


def test_the_lines_of_the_docs_write_a_model_as_a_program(
  tmp_path, monkeypatch
):
  page = PAGE.read_text('utf-8')
  [lines] = re.findall(r'^```python\n(.*?)^```', page, re.DOTALL | re.MULTILINE)
  export = models.export_to(tmp_path / 'export')
  monkeypatch.chdir(tmp_path)
  found = {}
  exec(lines.replace('/tmp/bert_tiny/export', export), found)
  assert os.path.getsize('bert.stablehlo') > 1000
  text = found['exported'].mlir_module()
  assert {kind for kind, _ in precision_test.products(text)} == {'HIGHEST'}
  row = np.array([[2, 5, 4, 3]], np.int32)
  batch = {'input_ids': row, 'input_mask': row * 0 + 1, 'segment_ids': row * 0}
  batch['masked_lm_positions'] = np.array([[2]], np.int32)
  for ours, theirs in zip(
    found['bert'].apply({'params': models.make_params()}, batch),
    found['exported'].call(batch),
    strict=True,
  ):
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
