"""Something that was created in the cloud for a run."""

import dataclasses

# The label of everything that these scripts create, and touch. Where a kind of
# resource has no labels, its description is LABEL=NAME.
LABEL = 'bert-jax-run'
# Metadata of hosts: what to do, see `job`.
JOB = 'bert-jax-job'

# States, the same for each API.
WAITING = 'waiting'  # in a queue or being created; free of charge
PROVISIONING = 'provisioning'  # got its chips, boots; cannot be deleted
ACTIVE = 'active'  # costs money
PREEMPTED = 'preempted'  # was taken away, or stopped
FAILED = 'failed'
DELETING = 'deleting'
IDLE = 'idle'  # what costs nothing: templates and policies

# Kinds that are hosts or bring them, as opposed to IDLE ones.
QUEUED, NODE, INSTANCE, GROUP = 'queued resource', 'node', 'instance', 'group'
TEMPLATE, POLICY = 'template', 'policy'


@dataclasses.dataclass(frozen=True)
class Resource:
  """A resource of a run.

  Attributes:
    kind: one of the kinds above.
    name: its name.
    place: its zone; the region for templates and policies.
    run: the run's name, from the label.
    state: one of the states above.
    message: why it failed.
    job: text of the job that its hosts do, if it is known.
    size: hosts that a group should have.
  """

  kind: str
  name: str
  place: str
  run: str
  state: str
  message: str = ''
  job: str = ''
  size: int = 0


def last_part(url: str) -> str:
  """Returns the part of a resource's URL behind the last slash."""
  return url.rpartition('/')[2]


def described_run(description: str | None) -> str | None:
  """Returns the run named by a description; None if it is another's."""
  key, _, name = (description or '').partition('=')
  return name if key == LABEL else None
