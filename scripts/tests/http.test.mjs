import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { once } from 'node:events';
import { test } from 'node:test';

import { untilHealthy } from '../lib/http.mjs';
import { PlainError } from '../lib/report.mjs';

const never = new Promise(() => {});
const PROBLEM = JSON.stringify({ code: 'unavailable', detail: 'Temporarily unavailable: PROVIDERS is not JSON.' });

/** Serves `answer(n)` (status and body) to the n-th question. */
async function serving(t, answer) {
  let asked = 0;
  const server = createServer((_, response) => {
    const [status, body] = answer((asked += 1));
    response.writeHead(status, { 'content-type': 'application/problem+json' }).end(body);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  return { url: `http://127.0.0.1:${server.address().port}/healthz`, asked: () => asked };
}

test('a server that says why it cannot serve is not waited for', async (t) => {
  const { url } = await serving(t, () => [503, PROBLEM]);
  const started = Date.now();
  await assert.rejects(untilHealthy(url, { gone: never, remedy: 'Mend it.' }), (error) => {
    assert.ok(error instanceof PlainError);
    assert.match(error.message, /PROVIDERS is not JSON\.$/);
    assert.equal(error.remedy, 'Mend it.');
    return true;
  });
  assert.ok(Date.now() - started < 10_000, 'long before the 60 s are over');
});

test('a server that could not serve for a moment is waited for', async (t) => {
  const server = await serving(t, (n) => (n < 4 ? [503, PROBLEM] : [200, '{}']));
  await untilHealthy(server.url, { gone: never });
  assert.equal(server.asked(), 4);
});

test('a 503 without a reason is waited for until the time is over', async (t) => {
  const waits = ['busy', '{}', '{"detail":7}', 'null'].map(async (body) => {
    const { url } = await serving(t, () => [503, body]);
    const waited = untilHealthy(url, { gone: never, timeout_ms: 1_900 });
    await assert.rejects(waited, /did not answer 200 within 1\.9 s \(last: 503\)/, body);
  });
  await Promise.all(waits);
});

test('the death of the server ends the wait', async (t) => {
  const { url } = await serving(t, () => [500, '']);
  await assert.rejects(untilHealthy(url, { gone: Promise.reject(new Error('died')) }), /died/);
});
