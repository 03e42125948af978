// Tenants of a deployment, by its operator's API.

import { PlainError } from './report.mjs';

/**
 * Creates a tenant, or finds it created: `{ id, grant_micros, keys, config }`, as `POST /admin/tenants` takes it. The
 * configuration is replaced, the first grant and the keys are made once.
 */
export async function createTenant(origin, operatorKey, tenant) {
  const answer = await fetch(`${origin}/admin/tenants`, {
    method: 'POST',
    headers: { authorization: `Bearer ${operatorKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(tenant),
  });
  if (!answer.ok) throw new PlainError(`The tenant '${tenant.id}' cannot be created: ${answer.status} ${await answer.text()}`);
  return answer.json();
}
