"""The Google Cloud project of a run, which every command is told.

gcloud's own choice may change while a run is watched, or between two commands.
"""

from bert_jax import errors
from launch import commands, ledger_file, records
from launch.world import World


def find(world: World, name: str | None, workdir: str | None) -> str:
  """Returns the project of a run, or gcloud's if it is not known.

  Args:
    world: runs commands.
    name: the run; None is all.
    workdir: its working directory, if it was given.

  Raises:
    errors.UserError: if neither is known.
  """
  noted, found = records.read(name) if name else {}, None
  if workdir in (None, noted.get('workdir')):
    found = noted.get('project')
  else:  # perhaps a run of the same name, started on another machine
    try:
      stored, _ = ledger_file.load(world, workdir)
      found = (stored or {}).get('project')
    except commands.CommandError as error:
      commands.warn(f'the project of {name} is not known: {error}')
  return found or find_chosen(world)


def find_chosen(world: World, dry_run: bool = False) -> str:
  """Returns the project that gcloud uses.

  Raises:
    errors.UserError: if there is none.
  """
  text = commands.ask(world.run, ['gcloud', 'config', 'get', 'project'])
  if not text.strip() and not dry_run:
    raise errors.UserError(
      'gcloud has no project; choose one by "gcloud config set project NAME".'
    )
  return text.strip() or 'PROJECT'


def enter(run: commands.Execute, project: str) -> commands.Execute:
  """Returns a function that runs commands of gcloud in a project."""

  def run_there(argv: list[str], **more) -> commands.Result:
    own = argv[0] == 'gcloud'
    return run([*argv, f'--project={project}'] if own else argv, **more)

  return run_there
