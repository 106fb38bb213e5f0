"""A sample of the fault matrix, and its page."""

import random

import damage
import faults
import faults_checkpoint
import faults_data
import pytest
import random_signals
import small_run


@pytest.fixture(scope='module')
def base(tmp_path_factory):
  return small_run.make_base(str(tmp_path_factory.mktemp('base')))


def test_the_page_has_the_rows_of_the_script():
  groups = faults.list_groups()
  expected = []
  for heading, rows in groups.items():
    expected.append(f'### {heading}')
    expected += [[x.name, x.done, x.promised] for x in rows]
  text = faults.PAGE.read_text(encoding='utf-8')
  found = []
  for line in text.splitlines():
    if line.startswith('### '):
      found.append(line)
    elif line.startswith('| ') and not line.startswith('| row '):
      cells = line.strip('| ').split(' | ')
      assert len(cells) == 4 and cells[3], line
      found.append(cells[:3])
  assert found == expected


@pytest.mark.parametrize('kind', damage.KINDS)
def test_each_kind_of_damage_changes_a_file(tmp_path, kind):
  path = tmp_path / 'a'
  path.write_bytes(bytes(range(256)) * 2)
  (tmp_path / 'b').write_bytes(b'other')
  before = path.read_bytes()
  damage.KINDS[kind](str(path), random.Random(0))
  assert not path.is_file() or path.read_bytes() != before


def test_no_damaged_checkpoint_is_silently_wrong(tmp_path):
  text = faults_checkpoint.damage_often(None, str(tmp_path), count=20, seed=3)
  assert text.startswith('20: ') and 'set aside' in text


@pytest.mark.slow
def test_no_damaged_shard_is_silently_wrong(base, tmp_path):
  text = faults_data.damage_shards(base, str(tmp_path), count=100, seed=4)
  assert text.startswith('100: ') and ' 0 named' not in text


@pytest.mark.slow
def test_no_step_is_lost_by_signals_at_random_moments(base, tmp_path):
  places, step = random_signals.interrupt_often(base, str(tmp_path / 'run'), 4)
  assert len(places) == 4 and step > 0
