"""One supervisor at a time goes on with a launch, and with its own alone."""

import json

import pytest

from bert_jax import errors
from launch import records, tpu
from launch.world import Answer
from tests.launch import fakes
from tests.launch.fakes import HAPPY, LEDGER, RUN, A, B, Google, interrupt

OTHER = [*RUN, '--workdir=gs://bkt/other']


def test_second_supervisor_adopts_and_the_first_gives_up():
  cloud, second = Google((*HAPPY, 'ACTIVE', 'ACTIVE')), []

  def each(count):
    if count == 5:
      second.append(True)
      cloud.end('done')
      assert tpu.main(RUN, cloud.world()) == 0

  cloud.each = each
  with pytest.raises(errors.UserError, match='another command watches'):
    tpu.main(RUN, cloud.world())
  assert cloud.created == [A] and not cloud.items and second


def test_second_start_at_the_same_time_rents_nothing():
  cloud = Google(HAPPY)
  here = cloud.world()

  def send(method, url, *rest):
    if '.tar.gz' in url:  # between load and save
      cloud.write(LEDGER, '{"writer": "another"}')
    return cloud.send(method, url, *rest)

  here.send = send
  with pytest.raises(errors.UserError, match='another command watches'):
    tpu.main(RUN, here)
  assert not cloud.created


def test_lost_answers_to_writes_of_the_ledger_end_no_watch():
  cloud = fakes.make_cloud((*HAPPY, 'ACTIVE', 'ACTIVE'))
  here, lost = cloud.world(), []

  def send(method, url, *rest):
    answer = cloud.send(method, url, *rest)
    if 'ledger' in url and method == 'POST' and cloud.created and len(lost) < 2:
      lost.append(answer)
      return Answer(0, b'timed out')
    return answer

  here.send = send
  assert tpu.main(RUN, here) == 0
  assert len(lost) == 2 and cloud.created == [A] and not cloud.items


def test_two_supervisors_of_one_name_never_touch_each_others_resources():
  """The second begins while the first is between deletion and creation."""
  lost = (*HAPPY, 'ACTIVE', 'SUSPENDED')
  cloud, touched, launches = Google(lost, HAPPY, HAPPY), [], {}

  def on_active(*_):
    job = cloud.read_job()
    launches[job['workdir']] = job['launch']
    if len(cloud.created) == 3:
      cloud.end('done')

  def make_world(workdir, each):
    def run(argv, seconds=0):
      if 'delete' in argv:
        touched.append((workdir, argv[argv.index('delete') + 1]))
      return cloud.run(argv, seconds)

    def sleep(seconds):
      cloud.sleep(seconds)
      each()

    here = cloud.world()
    here.run, here.sleep = run, sleep
    return here

  def begin():
    if len(cloud.created) == 1 and not cloud.items:
      assert tpu.main(OTHER, make_world('gs://bkt/other', end)) == 0

  def end():
    if 'gs://bkt/other' in launches:
      name = f'gs://bkt/other/launch/{launches["gs://bkt/other"]}/end'
      cloud.write(name, 'reason=done\n')

  cloud.on_active = on_active
  assert tpu.main(RUN, make_world('gs://bkt/r', begin)) == 0
  assert len(launches) == 2 and len(cloud.created) == 3 and not cloud.items
  assert {workdir for workdir, _ in touched} == {*launches}
  for workdir, name in touched:
    assert name.endswith(launches[workdir].rpartition('-')[2])


def test_name_of_another_run_is_refused():
  cloud = Google()
  fakes.add(cloud, 'r', 'ACTIVE', zone=B, workdir='gs://bkt/other')
  with pytest.raises(errors.UserError, match='in use by .*gs://bkt/other'):
    tpu.main(RUN, cloud.world())
  assert [zone for _, zone in cloud.items] == [B]


def test_second_name_does_not_take_the_ledger_of_a_live_launch():
  cloud = interrupt()
  before, words = cloud.objects[LEDGER], [*RUN, '--name=second']
  with pytest.raises(errors.UserError, match='in use by a launch named r'):
    tpu.main(words, cloud.world())
  assert cloud.objects[LEDGER] == before and cloud.created == [A]
  # It may begin once the first is ended.
  assert tpu.main(['stop', 'r'], cloud.world()) == 0
  cloud.states, cloud.on_active = [HAPPY], lambda *_: cloud.end('done')
  assert tpu.main(words, cloud.world()) == 0


@pytest.mark.parametrize('more', ['--topology=v5litepod-8', '--slices=2'])
def test_live_hosts_of_another_kind_are_not_doubled(more):
  cloud = interrupt()
  with pytest.raises(errors.UserError, match=f'hosts with {more[:8]}'):
    tpu.main([*RUN, more], cloud.world())
  assert cloud.created == [A] and cloud.items


@pytest.mark.parametrize('more', [[], [f'--zone={B}']])
@pytest.mark.parametrize('text', [None, '', '{"job": "x"}', '{"reason": 7}'])
def test_live_hosts_are_adopted_whatever_the_ledger_and_the_zones(
  text, more, capsys
):
  cloud = interrupt()
  launch = cloud.read_job()['launch']
  if text is not None:
    cloud.write(LEDGER, text)
  cloud.on_active = lambda *_: cloud.end('done')
  cloud.set_states('ACTIVE')
  assert tpu.main([*RUN, *more], cloud.world()) == 0
  assert cloud.created == [A] and not cloud.items
  assert json.loads(cloud.read(LEDGER))['job'] == launch
  damaged = 'ledger.json is damaged' in capsys.readouterr().err
  assert damaged == (text is not None)


def test_note_is_written_whole_or_not_at_all(monkeypatch):
  cloud = interrupt()
  noted = records.read_note('r')
  assert noted['workdir'] == 'gs://bkt/r' and noted['zones'] == [A, B]
  monkeypatch.setattr(records.files.json, 'dumps', lambda *_, **__: 1 / 0)
  with pytest.raises(ZeroDivisionError):
    tpu.main(RUN, cloud.world())
  assert records.read_note('r') == noted


def test_commands_stay_in_the_project_of_their_run(capsys):
  cloud = interrupt()
  cloud.project = 'p2'
  cloud.set_states('ACTIVE')
  assert tpu.main(['down', 'r'], cloud.world()) == 0
  assert 'project p1\n' in capsys.readouterr().out and not cloud.items
  gcloud = [argv for argv in cloud.argvs if 'queued-resources' in argv]
  assert {argv[-1] for argv in gcloud} == {'--project=p1'}


def test_run_is_not_continued_in_another_project():
  cloud = interrupt()
  cloud.items.clear()  # nothing of it is seen there
  cloud.project = 'p2'
  with pytest.raises(errors.UserError, match='is in project p1'):
    tpu.main(RUN, cloud.world())
  assert cloud.created == [A]
