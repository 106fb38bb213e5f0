"""Objects of a bucket."""

import datetime
import json
import urllib.parse
from typing import NamedTuple

from launch.world import World, ask, reading, request


class Changed(Exception):
  """An object is no longer the one that was read."""


class Content(NamedTuple):
  """What was read of an object."""

  data: bytes | None  # None if there is no object
  generation: str  # changes with each write; '0' if there is no object
  now: float | None  # the bucket's time, seconds since 1970, if it told it

  @property
  def text(self) -> str | None:
    return None if self.data is None else self.data.decode(errors='replace')


class Object(NamedTuple):
  """An object in a list."""

  url: str  # gs://BUCKET/NAME
  size: int  # bytes
  time: float  # when it was written, by the bucket's clock


def _split(url) -> tuple[str, str]:
  bucket, _, name = url.removeprefix('gs://').partition('/')
  return f'storage/v1/b/{bucket}/o', name


def read(world: World, url: str, first: int = 0) -> Content:
  """Returns an object `gs://...` from a byte on."""
  folder, name = _split(url)
  path = f'{folder}/{urllib.parse.quote(name, safe="")}?alt=media'
  head = {'Range': f'bytes={first}-'} if first else {}
  codes = (200, 206, 404)
  answer = request(world, 'GET', 'storage', path, None, codes, **head)
  if answer.code == 404:
    return Content(None, '0', answer.now)
  with reading(url):
    return Content(answer.data, answer.headers['x-goog-generation'], answer.now)


def write(world: World, url: str, text, generation: str | None = None) -> str:
  """Writes text or bytes and returns the object's generation.

  With a generation, only if the object still has it ('0': if there is none);
  otherwise `Changed` is raised.
  """
  folder, name = _split(url)
  query = {'uploadType': 'media', 'name': name}
  if generation is not None:
    query['ifGenerationMatch'] = generation
  path = f'upload/{folder}?{urllib.parse.urlencode(query)}'
  data = text.encode() if isinstance(text, str) else text
  answer = request(world, 'POST', 'storage', path, data, (200, 412))
  if answer.code == 412:
    raise Changed(url)
  with reading(url):
    return str(json.loads(answer.data)['generation'])


def list_objects(world: World, url: str) -> list[Object]:
  """Returns what is in a folder, a thousand at most, sorted by URL."""
  path, name = _split(f'{url}/')
  objects = []
  page = ask(world, 'storage', path, prefix=name)
  with reading(url):
    for item in page.get('items', []):
      at = datetime.datetime.fromisoformat(item['updated']).timestamp()
      full = f'{url}/{item["name"].removeprefix(name)}'
      objects.append(Object(full, int(item['size']), at))
  return sorted(objects)
