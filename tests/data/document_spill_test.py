import hashlib

from bert_jax.corpus import sources
from bert_jax.data import document_spill
from tests.data import preparation


def _digests(count):
  return [
    hashlib.blake2b(b'%d' % k, digest_size=16).digest() for k in range(count)
  ]


def _read(path, work, **changes):
  recipe = preparation.make_recipe(str(path), **changes)
  pieces = tuple(sources.plan(recipe.inputs, recipe.layout, recipe.field))
  return document_spill.read(
    document_spill.Job(0, pieces, 0, str(work)), recipe
  )


def test_documents_come_back_from_their_buckets(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_text('\n\n'.join(f'Number {k}.\nGödel.' for k in range(100)))
  found = _read(path, tmp_path)
  segments = [document_spill.Segment(*s) for s in found['segments']]
  texts = list(document_spill.read_texts(segments))
  assert sorted(t.document.paragraphs for t in texts) == sorted(
    [f'Number {k}.', 'Gödel.'] for k in range(100)
  )
  assert all(t.document.are_sentences for t in texts)
  recipe = preparation.make_recipe(str(path))
  for segment in segments:
    for text in document_spill.read_texts([segment]):
      raw = '\n'.join(text.document.paragraphs).encode()
      assert text.digest == hashlib.blake2b(raw, digest_size=16).digest()
      assert document_spill.choose_bucket(text.digest, recipe) == segment.bucket
  assert sum(s.documents for s in segments) == 100
  assert found['files'] == [
    [0, str(path), *(len(path.read_bytes()), _sha256(path))]
  ]


def _sha256(path):
  return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_full_buffer_is_written_before_the_end(tmp_path, monkeypatch):
  path = tmp_path / 'a.txt'
  path.write_text('\n\n'.join(f'Number {k}.' for k in range(100)))
  monkeypatch.setattr(document_spill, '_BUFFER', 500)
  found = _read(path, tmp_path)
  segments = [document_spill.Segment(*s) for s in found['segments']]
  assert len({s.path for s in segments}) > 5
  assert len(list(document_spill.read_texts(segments))) == 100


def test_a_finished_job_is_not_done_again(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_text('One.\n\nTwo.')
  found = _read(path, tmp_path)
  path.write_text('Other.')
  assert _read(path, tmp_path) == found


def test_buckets_hold_their_shares():
  recipe = preparation.make_recipe('x', heldout=0.1, shards=8)
  buckets = [document_spill.choose_bucket(d, recipe) for d in _digests(8000)]
  assert recipe.heldout_shards == 1
  # 800 +- 27 documents are held out, 900 +- 28 in each shard.
  assert 700 < buckets.count(8) < 900
  assert all(800 < buckets.count(k) < 1000 for k in range(8))


def test_heldout_shards_are_no_larger_than_training_shards():
  for heldout, shards, expected in [
    (0.01, 256, 4),
    (0.5, 256, 256),
    (0.01, 1, 1),
    (0.1, 4, 1),
  ]:
    recipe = preparation.make_recipe('x', heldout=heldout, shards=shards)
    assert recipe.heldout_shards == expected


def test_passes_are_whole_and_right_on_average():
  passes = [document_spill.draw_passes(d, 2.25) for d in _digests(4000)]
  assert set(passes) == {2, 3}
  assert abs(sum(passes) / 4000 - 2.25) < 0.03  # 4 deviations
  assert {document_spill.draw_passes(d, 3.0) for d in _digests(100)} == {3}
