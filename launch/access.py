"""What the hosts may do, checked before they are rented.

Hosts that cannot write to the bucket cannot say so, and hosts that cannot delete
their TPUs cost until somebody does.
"""

from bert_jax import errors
from launch.bucket import write
from launch.plan import Plan
from launch.world import Unknown, World, ask, warn

# {permission: the role that has it}.
_VERBS = ('create', 'get', 'list', 'delete')
_BUCKET = {f'storage.objects.{v}': 'storage.objectAdmin' for v in _VERBS}
# Orbax asks for the kind of the bucket.
_BUCKET['storage.buckets.get'] = 'storage.legacyBucketReader'
_DELETE = {f'tpu.{x}.delete': 'tpu.admin' for x in ('queuedResources', 'nodes')}
# Members who may contain the account.
_SETS = ('group:', 'domain:', 'principalSet:')
_MANAGER = 'cloudresourcemanager'


def check(world: World, plan: Plan):
  """Checks that the launcher and the hosts' service account have their rights.

  A missing one is a `UserError`; what cannot be read is a warning.
  """
  name, account = plan.workdir.split('/')[2], plan.account
  try:
    write(world, f'{plan.workdir}/launch/write_check', 'written\n')
  except Unknown as error:
    raise errors.UserError(
      f'{error}. Make the bucket with "gcloud storage buckets create gs://{name} '
      '--location=REGION" near the TPUs, or give one that you may write to.'
    ) from error
  place = f'v1/projects/{world.project}'
  try:
    if account is None:
      number = ask(world, _MANAGER, place)['projectNumber']
      account = f'{number}-compute@developer.gserviceaccount.com'
    member = f'serviceAccount:{account}'
    project = ask(world, _MANAGER, f'{place}:getIamPolicy', {})['bindings']
    bucket = ask(world, 'storage', f'storage/v1/b/{name}/iam')['bindings']
    rights = _list_rights(world, {member}, project)
    # Editors of a project have roles in its buckets by another name.
    basic = {b['role'][6:] for b in project if member in b['members']}
    names = {f'project{x.title()}:{world.project}' for x in basic}
    in_bucket = _list_rights(world, {member, *names}, bucket)
  except (Unknown, KeyError) as error:
    warn(f'the rights of the hosts could not be checked: {error}')
    return
  add = f'add-iam-policy-binding {{}} --member={member} --role=roles/'
  where = f'gcloud storage buckets {add.format(f"gs://{name}")}'
  _require(rights | in_bucket, _BUCKET, f'{account} needs {{}}: {where}')
  where = f'gcloud projects {add.format(world.project)}'
  _require(rights, _DELETE, f'{account} needs {{}} to delete its TPUs: {where}')


def _require(rights, needed, advice):
  missing = [right for right in needed if right not in rights][:1]
  for right in missing:
    advice = f'{advice.format(right)}{needed[right]} (docs/launch.md)'
    if '?' not in rights:
      raise errors.UserError(advice)
    warn(f'{advice}, unless it comes by a group or a condition')


def _list_rights(world, members, bindings) -> set[str]:
  """Returns the permissions that some members have; '?' if perhaps more."""
  found, everyone = set(), {'allUsers', 'allAuthenticatedUsers'}
  for binding in bindings:
    own = (members | everyone) & {*binding['members']}
    sets = [m for m in binding['members'] if m.startswith(_SETS)]
    if sets or (own and 'condition' in binding):
      found.add('?')
    elif own:
      role = ask(world, 'iam', f'v1/{binding["role"]}')
      found.update(role.get('includedPermissions', []))
  return found
