import hashlib

import pytest

from bert_jax.corpus import sources
from bert_jax.data import document_spill, heldout
from tests.data import preparation


def _digests(count):
  return [
    hashlib.blake2b(b'%d' % k, digest_size=16).digest() for k in range(count)
  ]


def _read(path, work, bound=1.0, **changes):
  recipe = preparation.make_recipe(str(path), **changes)
  pieces = tuple(sources.plan(recipe.inputs, recipe.layout, recipe.field))
  job = document_spill.Job(0, pieces, (32_000,), (bound,), str(work))
  found = document_spill.read(job, recipe)
  return found, [document_spill.Segment(*s) for s in found['segments']]


def test_documents_come_back_from_their_buckets(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_text('\n\n'.join(f'Number {k}.\nGödel.' for k in range(100)))
  found, segments = _read(path, tmp_path)
  texts = list(document_spill.read_texts(segments))
  assert sorted(t.document.paragraphs for t in texts) == sorted(
    [f'Number {k}.', 'Gödel.'] for k in range(100)
  )
  assert all(t.document.are_sentences for t in texts)
  recipe = preparation.make_recipe(str(path))
  for segment in segments:
    for text in document_spill.read_texts([segment]):
      raw = ' '.join(text.document.paragraphs).lower().encode()
      assert text.digest == hashlib.blake2b(raw, digest_size=16).digest()
      shard = document_spill.choose_shard(text.digest, recipe)
      # All text of a small input may be held out.
      assert segment.bucket == recipe.shards + shard
  assert sum(s.documents for s in segments) == 100
  raw = path.read_bytes()
  sha256 = hashlib.sha256(raw).hexdigest()
  assert found['files'] == [[0, str(path), len(raw), sha256]]


def test_a_full_buffer_is_written_before_the_end(tmp_path, monkeypatch):
  path = tmp_path / 'a.txt'
  path.write_text('\n\n'.join(f'Number {k}.' for k in range(100)))
  monkeypatch.setattr(document_spill, '_BUFFER', 500)
  _, segments = _read(path, tmp_path)
  assert len({s.path for s in segments}) > 5
  assert len(list(document_spill.read_texts(segments))) == 100


@pytest.mark.parametrize('lowercase, different', [(True, 2), (False, 3)])
def test_copies_that_the_tokenizer_sees_as_one_have_one_digest(
  tmp_path, lowercase, different
):
  path = tmp_path / 'a.txt'
  same = ['Gödel  left.', '\ufeffGo\u0308del\u00a0left.', 'Gödel left.\u200b']
  others = ['Gödel\nleft.', 'gödel LEFT.', 'godel left.', '\u200b\u200b']
  path.write_text('\n\n'.join([*same, *others]), 'utf-8')
  found, segments = _read(path, tmp_path, lowercase=lowercase)
  texts = list(document_spill.read_texts(segments))
  assert len(texts) == 6 and not found['counts']  # the last line is blank
  assert len({text.digest for text in texts}) == different


def test_of_a_large_input_little_is_kept_apart(tmp_path):
  bound = heldout.find_bound(1 << 30, 0.05)
  path = tmp_path / 'a.txt'
  path.write_text('\n\n'.join(f'Number {k}.' for k in range(4000)))
  found, segments = _read(path, tmp_path, bound, shards=4)
  apart = [s for s in segments if s.bucket >= 4]
  texts = list(document_spill.read_texts(apart))
  assert 324 < len(texts) < 476  # 400 +- 4 deviations
  assert all(heldout.draw(text.digest) < 0.1 for text in texts)
  counted = found['bins']['0'].values()
  assert sum(parts for _, parts in counted) == len(texts)
  below = document_spill.read_texts(segments, [0.05])
  assert [t for t in texts if heldout.draw(t.digest) < 0.05] == list(below)


def test_passes_are_whole_and_right_on_average():
  passes = [document_spill.draw_passes(d, 2.25) for d in _digests(4000)]
  assert set(passes) == {2, 3}
  assert abs(sum(passes) / 4000 - 2.25) < 0.03  # 4 deviations
  assert {document_spill.draw_passes(d, 3.0) for d in _digests(100)} == {3}
