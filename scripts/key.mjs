// Makes a client key for a tenant on this machine, and the digest by which the operator's API takes it in. (A key that
// the API makes itself needs none of this: POST /admin/tenants/TENANT/keys.)
//
//   KEY_PEPPER=... npm run key -- TENANT       (or KEY_PEPPER in .dev.vars)

import { randomBytes } from 'node:crypto';

import { main } from './lib/main.mjs';
import { PlainError, bold, say } from './lib/report.mjs';
import { devVars } from './lib/settings.mjs';
import { clientKey, keyDigest } from './local-vars.mjs';

const TENANT = /^[a-z0-9-]{1,32}$/;
const PEPPER_MIN_CHARACTERS = 16;

await main(() => {
  const [tenant] = process.argv.slice(2);
  if (!TENANT.test(tenant ?? '')) {
    throw new PlainError('Which tenant?', 'npm run key -- TENANT, where TENANT is 1 to 32 of a-z, 0-9 and -.');
  }
  const pepper = process.env.KEY_PEPPER ?? devVars().KEY_PEPPER ?? '';
  if (pepper.length < PEPPER_MIN_CHARACTERS) {
    throw new PlainError(
      `KEY_PEPPER must be the pepper of the deployment, ${PEPPER_MIN_CHARACTERS} characters or more.`,
      'Set it in the environment or in .dev.vars. To make one: openssl rand -hex 32',
    );
  }
  const key = clientKey(tenant, randomBytes(16).toString('hex'));
  const entry = { digest: keyDigest(pepper, key), role: 'client' };
  say(`${bold('Client key')} (shown once; it is not stored anywhere):\n  ${key}\n`);
  say(`${bold('To enter it')}: POST /admin/tenants/${tenant}/keys with the operator's key and this body:\n  ${JSON.stringify(entry)}\n`);
  say('The client sends the key as "Authorization: Bearer KEY" or "x-api-key: KEY": it is the API key of an OpenAI SDK');
  say('whose base URL is this deployment followed by /v1.');
});
