"""Reads and writes objects of a bucket with `gcloud storage`."""

import dataclasses
import datetime
import json
import re
import tempfile

from bert_jax import errors
from launch import commands, failures


class Changed(Exception):
  """An object is no longer the one that was read."""


def read(run: commands.Execute, url: str, first: int = 0) -> str | None:
  """Returns the text of an object from a byte on; None if there is none."""
  only = [f'--range={first}-'] if first else []
  try:
    return commands.ask(run, ['gcloud', 'storage', 'cat', *only, url])
  except commands.CommandError as error:
    if failures.is_missing(error.detail):
      return None
    raise


def write(
  run: commands.Execute, url: str, text: str, generation: str | None = None
) -> str:
  """Writes an object and returns its generation.

  Args:
    run: runs commands.
    url: `gs://…`.
    text: the content.
    generation: write only if the object still has this generation; '0' is only
      if there is none, None is in any case.

  Raises:
    Changed: if it has another.
    commands.CommandError: if it cannot be written.
  """
  only = [] if generation is None else [f'--if-generation-match={generation}']
  with tempfile.NamedTemporaryFile('w', encoding='utf-8') as file:
    file.write(text)
    file.flush()
    argv = ['gcloud', 'storage', 'cp', '--print-created-message', *only]
    result = run([*argv, file.name, url])
  if result.code and failures.is_changed(result.err):
    raise Changed(url)
  if result.code:
    raise commands.CommandError(
      f'{url} cannot be written: {failures.shorten(result.err)}', result.err
    )
  created = re.search(r'#(\d+)', result.err)
  return created[1] if created else get_generation(run, url)


def get_generation(run: commands.Execute, url: str) -> str:
  """Returns the generation of an object; '0' if there is none."""
  argv = ['gcloud', 'storage', 'objects', 'describe', url, '--format=json']
  try:
    return str(json.loads(commands.ask(run, argv) or '{}').get('generation', 0))
  except commands.CommandError as error:
    if failures.is_missing(error.detail):
      return '0'
    raise


@dataclasses.dataclass(frozen=True)
class Object:
  """An object of a bucket.

  Attributes:
    url: `gs://BUCKET/NAME`.
    size: its bytes.
    time: when it was written, seconds since 1970.
    generation: changes with each write.
  """

  url: str
  size: int
  time: float
  generation: str


def list_objects(run: commands.Execute, patterns: list[str]) -> list[Object]:
  """Returns the objects that match any of some patterns, sorted by URL."""
  argv = ['gcloud', 'storage', 'objects', 'list', *patterns, '--format=json']
  found = json.loads(commands.ask(run, argv) or '[]')
  made = [
    Object(
      f'gs://{item["bucket"]}/{item["name"]}',
      int(item['size']),
      _seconds(item['update_time']),
      str(item['generation']),
    )
    for item in found
  ]
  return sorted(made, key=lambda item: item.url)


def _seconds(text: str) -> float:
  return datetime.datetime.strptime(text, '%Y-%m-%dT%H:%M:%S%z').timestamp()


def check_writable(run: commands.Execute, workdir: str):
  """Writes and reads an object, before anything is rented.

  Raises:
    errors.UserError: if that fails.
  """
  url = f'{workdir}/launch/write_check'
  try:
    write(run, url, 'written by the launcher\n')
    read(run, url)
  except commands.CommandError as error:
    bucket = '/'.join(workdir.split('/')[:3])
    raise errors.UserError(
      f'--workdir={workdir}: {error}. Make the bucket with "gcloud storage '
      f'buckets create {bucket} --location=REGION" near the TPUs, or give one '
      'that you may write to.'
    ) from error
