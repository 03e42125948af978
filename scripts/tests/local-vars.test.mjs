import assert from 'node:assert/strict';
import { createHash, createHmac } from 'node:crypto';
import { test } from 'node:test';

import { clientKey, demoKey, demoTenant, keyDigest, localVars } from '../local-vars.mjs';

test('a client key ends with the checksum of what precedes it', () => {
  const random = '00112233445566778899aabbccddeeff';
  const key = clientKey('acme-1', random);
  const checksum = createHash('sha256').update(`hfk_acme-1_${random}`).digest().subarray(0, 4).toString('hex');
  assert.equal(key, `hfk_acme-1_${random}${checksum}`);
});

test('a digest is the HMAC of the whole key under the pepper', () => {
  // RFC 4231, test case 2.
  const digest = keyDigest('Jefe', 'what do ya want for nothing?');
  assert.equal(digest, '5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843');
});

test('the demo tenant knows the demo key by its digest under the pepper in use', () => {
  for (const vars of [localVars({ simulatorOrigin: 'http://127.0.0.1:1' }), localVars({ simulatorOrigin: 'x', pepper: 'another pepper here' })]) {
    const [key] = demoTenant(vars.KEY_PEPPER).keys;
    assert.equal(key.digest, createHmac('sha256', vars.KEY_PEPPER).update(demoKey()).digest('hex'));
    assert.ok(vars.OPERATOR_KEY.length >= 16);
  }
});

test('every demo route goes to the provider that the variables declare, and its secret is there', () => {
  const vars = localVars({ simulatorOrigin: 'http://127.0.0.1:4000' });
  const providers = JSON.parse(vars.PROVIDERS);
  for (const provider of providers) {
    assert.equal(provider.origin, 'http://127.0.0.1:4000');
    assert.ok(vars[provider.secret]);
  }
  for (const route of demoTenant('p').config.routes) {
    assert.ok(providers.some((provider) => provider.name === route.provider), route.provider);
  }
});
