"""Checks objects of Kubernetes against the definitions of their kinds, strictly.

A server drops fields that a schema does not name, unless it is asked to refuse
them; here they are refused. Rules in CEL (`x-kubernetes-validations`) are not
evaluated, and metadata is Kubernetes' own.
"""

import lzma
from collections.abc import Callable, Sequence

import jsonschema
import yaml


def read(paths: Sequence[str]) -> Callable[[dict], list[str]]:
  """Returns a function that lists what is wrong with an object.

  Args:
    paths: files with a CustomResourceDefinition each, `.yaml` or `.yaml.xz`.
  """
  validators = {}
  for path in paths:
    with (lzma.open if path.endswith('.xz') else open)(path, 'rb') as file:
      spec = yaml.safe_load(file)['spec']
    for version in spec['versions']:
      if not version['served']:
        continue
      schema = version['schema']['openAPIV3Schema']
      _close(schema)
      schema['properties']['metadata'] = {'type': 'object'}
      key = f'{spec["group"]}/{version["name"]}', spec['names']['kind']
      validators[key] = jsonschema.Draft4Validator(schema)

  def check(value: dict) -> list[str]:
    key = value['apiVersion'], value['kind']
    if key not in validators:
      return [f'no {key[1]} is served as {key[0]}, only {sorted(validators)}']
    return [
      f'{".".join(map(str, error.absolute_path))}: {error.message}'
      for error in validators[key].iter_errors(value)
    ]

  return check


def _close(schema):
  """Lets a schema refuse the fields that it does not name."""
  if isinstance(schema, dict):
    kept = schema.get('x-kubernetes-preserve-unknown-fields')
    if 'properties' in schema and not kept:
      schema.setdefault('additionalProperties', False)
    for item in [*schema.values()]:
      _close(item)
  elif isinstance(schema, list):
    for item in schema:
      _close(item)
