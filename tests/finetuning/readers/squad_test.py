"""Tests of reading files in the form of SQuAD."""

import gzip
import json

import pytest

from bert_jax import errors
from bert_jax.finetuning.readers import squad

QUESTION = {
  'id': 'a',
  'question': 'Who?',
  'answers': [{'text': 'She', 'answer_start': 0}],
}
CONTENT = {
  'data': [
    {
      'title': 'x',
      'paragraphs': [
        {'context': 'She did.', 'qas': [QUESTION, {**QUESTION, 'id': 'b'}]},
        {'context': 'Later.', 'qas': []},
      ],
    },
    {'paragraphs': [{'context': '그녀', 'qas': [{**QUESTION, 'id': 'c'}]}]},
  ]
}


def write(folder, content):
  (folder / 'x.json').write_text(json.dumps(content))
  return str(folder / 'x.json')


def change(row=None, **fields):
  """Returns the content with another last question, or other fields of it."""
  found = json.loads(json.dumps(CONTENT))
  rows = found['data'][1]['paragraphs'][0]['qas']
  rows[0] = {**rows[0], **fields} if row is None else row
  return found


def test_questions_are_read_in_order_with_their_passages(tmp_path):
  found = squad.read(write(tmp_path, CONTENT))
  assert found.passages == ('She did.', 'Later.', '그녀')
  assert [(x.id, x.passage) for x in found.units] == [
    ('a', 0), ('b', 0), ('c', 2)
  ]  # fmt: skip
  assert found.units[0].text == 'Who?'
  assert found.units[0].answers == (('She', 0),)


def test_a_file_may_be_compressed_and_be_read_in_part(tmp_path):
  with gzip.open(tmp_path / 'x.json.gz', 'wt') as file:
    json.dump(CONTENT, file)
  found = squad.read(str(tmp_path / 'x.json.gz')).take([0, 1])
  assert found.passages == ('She did.',) and len(found.units) == 2


KNOWN, EMPTY = {'answers': QUESTION['answers']}, {'answers': []}
SHE = (('She', 0),)


@pytest.mark.parametrize(
  ('questions', 'answers'),
  [
    ([KNOWN, EMPTY], [SHE, ()]),
    ([EMPTY, KNOWN], [(), SHE]),
    ([KNOWN, KNOWN | {'is_impossible': True}], [SHE, ()]),  # only plausible
    ([KNOWN, {}], [SHE, None]),
    ([KNOWN, {'is_impossible': True}], [SHE, ()]),
    # Without any answer in the file, none is known.
    ([EMPTY, EMPTY], [None, None]),
    ([EMPTY | {'is_impossible': False}], [None]),
    ([EMPTY | {'is_impossible': True}], [()]),
    # Texts, as from a table.
    ([KNOWN | {'is_impossible': 'false'}], [SHE]),
    ([KNOWN, KNOWN | {'is_impossible': 'True'}], [SHE, ()]),
    # As of Hugging Face.
    (
      [{'answers': {'text': ['She', 'did'], 'answer_start': [0, 4]}}],
      [(*SHE, ('did', 4))],
    ),
    ([KNOWN, {'answers': {'text': [], 'answer_start': []}}], [SHE, ()]),
    # An empty text is no answer.
    ([KNOWN, {'answers': [{'text': '', 'answer_start': -1}]}], [SHE, ()]),
  ],
)
def test_answers_may_be_none_or_unknown(tmp_path, questions, answers):
  rows = [
    {'id': str(i), 'question': 'Who?', **x} for i, x in enumerate(questions)
  ]
  content = {'data': [{'paragraphs': [{'context': 'She did.', 'qas': rows}]}]}
  found = squad.read(write(tmp_path, content))
  assert [x.answers for x in found.units] == answers


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    (b'{"data": [', 'x.json is not JSON in the form of SQuAD: .*; correct'),
    ([], 'has no questions'),
    ({'version': 1}, "in the form of SQuAD: 'data'"),
    ({'data': []}, 'has no questions'),
    (change(id='a'), "several questions with the id 'a'"),
    (change(is_impossible='no'), r"data\[1\] .*: is_impossible is 'no'"),
    (
      change(answers={'text': ['She', 'it'], 'answer_start': [0]}),
      'shorter than arg',
    ),
    (change({'id': 'c'}), r"data\[1\] is not in the form of SQuAD: 'question'"),
    (change('Who?'), 'string indices'),
    (change(question=3), '3 is not a text'),
    (change(answers=[{'text': 'She'}]), "'answer_start'; correct it"),
  ],
)
def test_what_is_malformed_is_refused_with_its_place(
  tmp_path, content, message
):
  path = tmp_path / 'x.json'
  raw = isinstance(content, bytes)
  path.write_bytes(content if raw else json.dumps(content).encode())
  with pytest.raises(errors.UserError, match=message):
    squad.read(str(path))


def test_ids_may_be_whole_numbers_or_guids(tmp_path):
  found = squad.read(write(tmp_path, change(id=3)))
  assert [x.id for x in found.units] == ['a', 'b', '3']
  rows = {'guid': 'klue', 'question': 'Who?', 'answers': []}
  found = squad.read(write(tmp_path, change(rows)))
  assert [x.id for x in found.units] == ['a', 'b', 'klue']
  with pytest.raises(errors.UserError, match="with the id '3'"):
    content = change(id=3)
    content['data'][0]['paragraphs'][0]['qas'][0]['id'] = '3'
    squad.read(write(tmp_path, content))


FLAT = [
  QUESTION | {'context': 'She did.'},
  QUESTION | {'id': 'b', 'context': 'Later.'},
  QUESTION | {'id': 'c', 'context': 'She did.'},
]


@pytest.mark.parametrize(
  'text',
  [
    json.dumps(FLAT),
    json.dumps({'version': 'x', 'data': FLAT}),
    '\n'.join(map(json.dumps, FLAT)) + '\n',
  ],
)
def test_flat_rows_share_their_passages(tmp_path, text):
  (tmp_path / 'x.json').write_text(text)
  found = squad.read(str(tmp_path / 'x.json'))
  assert found.passages == ('She did.', 'Later.')
  assert [(x.id, x.passage) for x in found.units] == [
    ('a', 0), ('b', 1), ('c', 0)
  ]  # fmt: skip
  assert found.units[0].answers == SHE
