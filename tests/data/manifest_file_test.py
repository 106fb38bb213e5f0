import json

import pytest

from bert_jax import errors
from bert_jax.data import manifest_file


@pytest.mark.parametrize('text', [None, '{', '[]'])
def test_a_folder_without_a_readable_manifest_is_no_data(tmp_path, text):
  if text is not None:
    (tmp_path / 'manifest.json').write_text(text)
  with pytest.raises(errors.UserError, match='is not prepared data'):
    manifest_file.read(str(tmp_path))


def test_a_changed_manifest_is_refused(tmp_path):
  made = {
    'format': manifest_file.FORMAT,
    'recipe': {'seed': 3},
    'lengths': {'32': {}},
    'shards': (),
  }
  manifest_file.write(str(tmp_path), made)
  as_read = {**made, 'shards': []}
  assert manifest_file.read(str(tmp_path)) == as_read
  path = tmp_path / 'manifest.json'
  whole = path.read_text()
  for change in (('"seed": 3', '"seed": 2'), ('"shards"', '"shares"')):
    path.write_text(whole.replace(*change))
    with pytest.raises(errors.UserError, match='not as it was written'):
      manifest_file.read(str(tmp_path))
  path.write_text(json.dumps(made))
  with pytest.raises(errors.UserError, match='checksum is missing'):
    manifest_file.read(str(tmp_path))


def test_data_of_another_format_say_to_prepare_again(tmp_path):
  directory = str(tmp_path)
  manifest_file.write(directory, {'recipe': {'seed': 3}, 'lengths': {}})
  with pytest.raises(
    errors.UserError, match=f'^{directory} was .* another version .* delete it'
  ):
    manifest_file.read(directory)
  assert manifest_file.read(directory, 'recipe')['recipe'] == {'seed': 3}
