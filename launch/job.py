"""What each host is told to do: lines that launch/worker.sh reads.

key=value, where `argument` and `delete` come once per argument
"""

from launch import plan as plan_lib


def render(
  plan: plan_lib.Plan,
  job: str,
  sha256: str,
  seconds: float,
  delete: list[str],
) -> str:
  """Returns the text for the metadata of hosts.

  Args:
    plan: the run.
    job: its launch, which names what this launch writes to the bucket.
    sha256: that of the archive of the code.
    seconds: time after which the hosts stop.
    delete: the command with which host 0 deletes the resource.
  """
  topology = plan.topology
  lines = {
    'name': plan.name,
    'job': job,
    'workdir': plan.workdir,
    'archive': archive_url(plan.workdir, sha256),
    'sha256': sha256,
    'topology': topology.name,
    'slices': topology.slices,
    'hosts': topology.hosts // topology.slices,
    'seconds': int(seconds),
  }
  pairs = [
    *lines.items(),
    *(('argument', text) for text in plan.arguments),
    *(('delete', text) for text in delete),
  ]
  return ''.join(f'{key}={value}\n' for key, value in pairs)


def read(text: str) -> dict[str, str]:
  """Returns {key: value} of a job, without its repeated keys."""
  pairs = (line.partition('=') for line in text.splitlines() if '=' in line)
  return {
    key: value for key, _, value in pairs if key not in ('argument', 'delete')
  }


def archive_url(workdir: str, sha256: str) -> str:
  """Returns where the archive of the code lies."""
  return f'{workdir}/launch/code-{sha256}.tar.gz'


def end_url(workdir: str, job: str) -> str:
  """Returns where the first to know writes why a launch ends."""
  return f'{workdir}/launch/{job}/end'


def ledger_url(workdir: str) -> str:
  """Returns where the supervisor keeps what it did and spent."""
  return f'{workdir}/launch/ledger.json'


def logs_url(workdir: str) -> str:
  """Returns the pattern of the hosts' logs."""
  return f'{workdir}/logs/host-*.log'


def status_url(workdir: str) -> str:
  """Returns where the run says how far it is."""
  return f'{workdir}/status.json'
