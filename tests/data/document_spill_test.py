import hashlib

import numpy as np
import pytest

from bert_jax.corpus import sources
from bert_jax.corpus.document import Document
from bert_jax.data import document_spill
from tests.data import preparation


def _read(path, work, size=1, **changes):
  recipe = preparation.make_recipe(str(path), **changes)
  [ranges] = sources.plan(recipe.inputs, recipe.layout, recipe.field)
  job = document_spill.Job(0, tuple(ranges), (size,), str(work))
  found = document_spill.read(job, recipe)
  return found, [document_spill.Segment(*s) for s in found['segments']]


@pytest.mark.parametrize('buffer', [500, 32 << 20])
def test_documents_come_back_from_their_buckets(tmp_path, monkeypatch, buffer):
  monkeypatch.setattr(document_spill, '_BUFFER', buffer)
  path = tmp_path / 'a.txt'
  path.write_text('\n\n'.join(f'Number {k}.\nGödel.' for k in range(100)))
  found, segments = _read(path, tmp_path)
  assert (len({s.path for s in segments}) > 5) == (buffer == 500)
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
      shard = int.from_bytes(text.digest[8:], 'little') % recipe.shards
      # All text of a small input may be held out.
      assert segment.bucket == recipe.shards + shard
  assert sum(s.documents for s in segments) == 100
  raw = path.read_bytes()
  sha256 = hashlib.sha256(raw).hexdigest()
  assert found['files'] == [[0, str(path), len(raw), sha256]]


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
  path = tmp_path / 'a.txt'
  path.write_text('\n\n'.join(f'Number {k}.' for k in range(4000)))
  found, segments = _read(path, tmp_path, 1 << 30, shards=4, heldout=0.05)
  apart = [s for s in segments if s.bucket >= 4]
  texts = list(document_spill.read_texts(apart))
  assert 324 < len(texts) < 476  # 400 +- 4 deviations
  assert all(document_spill.draw(text.digest) < 0.1 for text in texts)
  parts = found['tallies']['0'][1]
  assert sum(parts[:-1]) == len(texts) and sum(parts) == 4000
  below = document_spill.read_texts(segments, [0.05])
  assert [t for t in texts if document_spill.draw(t.digest) < 0.05] == list(
    below
  )


def test_passes_are_whole_and_right_on_average():
  digests = [b'%016d' % k for k in range(4000)]
  passes = [document_spill.draw_passes(d, 2.25) for d in digests]
  assert set(passes) == {2, 3}
  assert abs(sum(passes) / 4000 - 2.25) < 0.03  # 4 deviations
  assert {document_spill.draw_passes(d, 3.0) for d in digests} == {3}


def test_a_document_is_cut_into_similar_parts_between_paragraphs():
  paragraphs = ['x' * n for n in (10, 30, 20, 40, 5, 35, 60)]
  parts = document_spill.cut(Document(paragraphs, True), 70, 'en')
  assert sum((p.paragraphs for p in parts), []) == paragraphs
  assert [sum(map(len, p.paragraphs)) for p in parts] == [100, 40, 60]
  assert all(p.are_sentences for p in parts)
  whole = Document(paragraphs)
  assert document_spill.cut(whole, 200, 'en') == [whole]


def test_a_paragraph_is_cut_between_sentences():
  sentences = [f'This is the sentence of number {k}.' for k in range(100)]
  text = ' '.join(sentences)
  parts = document_spill.cut(Document([text]), 500, 'en')
  assert sum((p.paragraphs for p in parts), []) == sentences
  assert len(parts) == -(-len(text) // 500)


@pytest.mark.parametrize(
  'size, parts, share, expected',
  [
    (10_000_000, 1000, 0.05, 50),  # its share
    (10_000_000, 1000, 0.01, 27),  # 256 kB
    (1_000_000, 1000, 0.01, 100),  # a tenth
    (1_000_000, 1000, 0.3, 300),
    (10_000, 10, 0.01, 2),  # pairs need two documents
    (10_000, 4, 0.9, 2),
    (10_000, 10, 0.9, 8),  # and so does training
    (10_000, 3, 0.01, 1),
    (10_000, 1, 0.5, 0),
  ],
)
def test_a_small_input_holds_out_more_and_never_all(
  size, parts, share, expected
):
  tally = np.zeros((2, document_spill.BINS + 1), int)
  bins = [k * 7 % 1000 for k in range(parts)]
  tally[:, bins] = [[size // parts], [1]]
  end, held, count = document_spill.choose(share, tally)
  assert count == expected and held == expected * size // parts
  assert sum(x < end for x in bins) == expected


def test_documents_are_cut_into_parts_of_several_rows_of_sentences(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_text('\n'.join(f'{k:09} words.' for k in range(40_000)))

  def count(**changes):
    work = tmp_path / str(changes)
    work.mkdir()
    found, segments = _read(path, work, **changes)
    return sum(s.documents for s in segments)

  # 640 kB: parts of 32,000 characters, or of 32 for each token of a row.
  assert count(lengths=(8192,)) == 20
  assert count(lengths=(128,), rows='doc_sentences') == 20
  assert count(lengths=(8192, 128), rows='full_sentences') == 3
