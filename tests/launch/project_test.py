"""Commands stay in the project of their run."""

import pytest

from bert_jax import errors
from launch import tpu
from tests.launch import fakes
from tests.launch.runs import HAPPY, RUN, A, interrupt, make_cloud


def _list_projects(argvs):
  """Returns the projects that commands of gcloud name; None if one does not."""
  flags = [[w for w in argv if w.startswith('--project')] for argv in argvs]
  asked = ['gcloud', 'config', 'get', 'project']
  return {
    f[0] if f else None for f, a in zip(flags, argvs, strict=True) if a != asked
  }


def test_watch_stays_in_its_project_when_gcloud_chooses_another():
  cloud = fakes.Gcloud((*HAPPY, 'ACTIVE', 'SUSPENDED'), HAPPY)

  def on_active():
    cloud.project = 'p2'
    if not cloud.states:
      cloud.end('done')

  cloud.on_active = on_active
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A, A]
  gcloud = [argv for argv in cloud.argvs if argv[0] == 'gcloud']
  assert _list_projects(gcloud) == {'--project=p1'}


@pytest.mark.parametrize('here', [True, False])
def test_run_is_looked_for_in_its_own_project(here, monkeypatch, tmp_path):
  cloud = make_cloud(HAPPY)
  assert tpu.main(RUN, cloud.world()) == 0
  cloud.project, count = 'p2', len(cloud.argvs)
  words = ['down', 'r']
  if not here:
    monkeypatch.setenv('XDG_STATE_HOME', str(tmp_path / 'other'))
    words.append('--workdir=gs://bkt/r')
  assert tpu.main(words, cloud.world()) == 0
  lists = [argv for argv in cloud.argvs[count:] if 'list' in argv]
  assert lists and _list_projects(lists) == {'--project=p1'}


def test_run_is_not_continued_in_another_project():
  cloud = interrupt()
  cloud.queue.clear()  # nothing of it is seen there
  cloud.project = 'p2'
  with pytest.raises(errors.UserError, match='is in project p1'):
    tpu.main(RUN, cloud.world())
  assert cloud.created == [A]
  # What is ended there may begin here.
  del cloud.sleep
  assert tpu.main(['stop', 'r'], cloud.world()) == 0
  cloud.states, cloud.on_active = [HAPPY], lambda: cloud.end('done')
  assert tpu.main(RUN, cloud.world()) == 0
