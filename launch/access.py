"""What the hosts may do, checked before they are rented.

Hosts that cannot write to the bucket cannot say so, and hosts that cannot delete
their TPUs cost until somebody does.
"""

from bert_jax import errors
from launch.bucket import write
from launch.plan import Plan
from launch.world import Unknown, World, ask, warn

# {permission: the role that has it}. Orbax asks for the kind of the bucket.
_VERBS = ('create', 'get', 'list', 'delete')
_BUCKET = {f'storage.objects.{v}': 'storage.objectAdmin' for v in _VERBS}
_BUCKET['storage.buckets.get'] = 'storage.legacyBucketReader'
_PROJECT = {
  f'tpu.{x}.delete': 'tpu.admin' for x in ('queuedResources', 'nodes')
}


def check(world: World, plan: Plan):
  """Checks that the launcher and the hosts' service account have their rights.

  A missing one is a `UserError`; what cannot be known is a warning.
  """
  name, project = plan.workdir.split('/')[2], world.project
  try:
    write(world, f'{plan.workdir}/launch/write_check', 'written\n')
  except Unknown as error:
    raise errors.UserError(
      f'{error}. Make the bucket with "gcloud storage buckets create gs://{name} '
      '--location=REGION" near the TPUs, or give one that you may write to.'
    ) from error
  resources = {
    f'//storage.googleapis.com/projects/_/buckets/{name}': _BUCKET,
    f'//cloudresourcemanager.googleapis.com/projects/{project}': _PROJECT,
  }
  try:
    account = plan.account
    if account is None:
      told = ask(world, 'cloudresourcemanager', f'v1/projects/{project}')
      account = f'{told["projectNumber"]}-compute@developer.gserviceaccount.com'
    for resource, rights in resources.items():
      kind = 'projects' if rights is _PROJECT else 'storage buckets'
      where = project if rights is _PROJECT else f'gs://{name}'
      for right, role in rights.items():
        access = {'principal': account, 'fullResourceName': resource}
        data = {'accessTuple': access | {'permission': right}}
        told = ask(world, 'policytroubleshooter', 'v3/iam:troubleshoot', data)
        state = told['overallAccessState']
        if state == 'CANNOT_ACCESS':
          raise errors.UserError(
            f'{account} needs {right}: gcloud {kind} add-iam-policy-binding '
            f'{where} --member=serviceAccount:{account} --role=roles/{role} '
            '(docs/launch.md)'
          )
        if state != 'CAN_ACCESS':
          warn(
            f'{account} needs {right}, and it is not known whether it has it'
          )
  except (Unknown, KeyError) as error:
    warn(f'the rights of the hosts could not be checked: {error}')
