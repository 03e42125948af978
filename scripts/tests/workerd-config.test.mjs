// Real workerd serves a small Worker with the configuration that is written for the product, in the network that it is given.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { background, stop, untilGone } from '../lib/children.mjs';
import { allowedNetworks } from '../lib/egress.mjs';
import { freePort, untilHealthy } from '../lib/http.mjs';
import { workerdBinary } from '../lib/paths.mjs';
import { writeConfig } from '../workerd-config.mjs';

const NASTY = { QUOTES: `"double" 'single' \\ back`, LINES: 'a\nb\r\n\tc\u0001\u007f', WIDE: 'é 漢字 🎈', DOLLARS: '${HOME} $1 $& #{x}', EMPTY: '' };

/** Answers with its variables, passes on to the assets, calls a URL, and counts in an object's SQL storage. */
const WORKER = `
import wasm from './index_bg.wasm';
import { DurableObject } from 'cloudflare:workers';
class Counter extends DurableObject {
  fetch() {
    const { sql } = this.ctx.storage;
    sql.exec('CREATE TABLE IF NOT EXISTS n (v INTEGER)');
    sql.exec('INSERT INTO n VALUES (1)');
    return Response.json(sql.exec('SELECT COUNT(*) AS n FROM n').one().n);
  }
}
export class ReservationObject extends Counter {}
export class TenantObject extends Counter {}
export default {
  fetch(request, { ASSETS, RESERVATION, TENANT, ...vars }) {
    const { pathname: path, searchParams } = new URL(request.url);
    if (path === '/healthz') return new Response(wasm instanceof WebAssembly.Module ? 'ok' : 'bad');
    if (path === '/vars') return Response.json(vars);
    if (path === '/call') return fetch(searchParams.get('url')).catch(() => new Response('not reached', { status: 502 }));
    if (path === '/count') return RESERVATION.get(RESERVATION.idFromName('a')).fetch(request);
    return ASSETS.fetch(request);
  },
};`;

const EMPTY_WASM = new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]);
const folder = mkdtempSync(join(tmpdir(), 'holdfast-config-'));
let child;
let origin;

async function serve(vars = {}) {
  const port = await freePort();
  const out = join(folder, 'made', 'config.capnp');
  const [storage, build] = [join(folder, 'not', 'there', 'yet'), join(folder, 'build')];
  const config = await writeConfig({ out, port, storage, build, vars: { ...NASTY, ...vars } });
  child = background(workerdBinary(), ['serve', config]);
  origin = `http://127.0.0.1:${port}`;
  await untilHealthy(`${origin}/healthz`, { gone: untilGone(child, 'workerd') });
}

before(async () => {
  mkdirSync(join(folder, 'build'));
  writeFileSync(join(folder, 'build', 'index.js'), WORKER);
  writeFileSync(join(folder, 'build', 'index_bg.wasm'), EMPTY_WASM);
  await serve();
});

after(async () => {
  await stop(child);
  rmSync(folder, { recursive: true });
});

test('variables arrive as they are, over those of wrangler.toml', async () => {
  const vars = await (await fetch(`${origin}/vars`)).json();
  for (const [name, value] of Object.entries(NASTY)) assert.equal(vars[name], value, name);
  assert.ok(JSON.parse(vars.PROVIDERS)[0].name, 'what is not given is that of wrangler.toml');
});

test('objects keep their rows on disk over a restart', async () => {
  assert.equal(await (await fetch(`${origin}/count`)).json(), 1);
  await stop(child);
  await serve();
  assert.equal(await (await fetch(`${origin}/count`)).json(), 2);
});

test('assets: the page at /, its type, 404 for the rest and for folders, no way out of the folder', async () => {
  const page = await fetch(`${origin}/`);
  assert.equal(page.status, 200);
  assert.equal(page.headers.get('content-type'), 'text/html; charset=utf-8');
  assert.match(await page.text(), /<(!doctype )?html/i);
  for (const path of ['/no-such-page', '/no-such.css', '/%2e%2e/package.json', '/..%2fpackage.json']) {
    assert.equal((await fetch(origin + path)).status, 404, path);
  }
  assert.equal((await fetch(`${origin}/`, { method: 'POST' })).status, 405);
  const head = await fetch(`${origin}/`, { method: 'HEAD' });
  assert.equal(head.status, 200);
});

const providers = (...origins) => JSON.stringify(origins.map((origin) => ({ origin })));

test('what may be called: the public Internet, and what the settings name', () => {
  for (const [vars, added] of [
    [{}, []],
    [{ PROVIDERS: providers('https://api.example', 'https://127.0.0.1.example', 'https://localhost.example') }, []],
    [{ PROVIDERS: providers('http://127.0.0.1:4711', 'http://127.0.0.1:4712') }, ['127.0.0.1/32']],
    [{ PROVIDERS: providers('http://localhost:4711') }, ['127.0.0.1/32', '::1/128']],
    [{ PROVIDERS: providers('https://10.1.2.3:8443') }, ['10.1.2.3/32']],
    [{ LOCAL: 'true' }, ['127.0.0.1/32', '::1/128']],
    [{ LOCAL: 'false', EGRESS_ALLOW: '' }, []],
    [{ EGRESS_ALLOW: '10.1.0.0/16, fd00::/8\n192.168.7.7' }, ['10.1.0.0/16', 'fd00::/8', '192.168.7.7/32']],
    [{ PROVIDERS: 'no JSON' }, []],
  ]) {
    assert.deepEqual(allowedNetworks(vars), ['public', ...added], JSON.stringify(vars));
  }
  for (const wrong of ['private', '10.0.0.0/33', '10.0.0.0/', '10.0.0.0/8/8', 'fd00::/129', '10.0.0/8', '10.0.0.0/-1']) {
    assert.throws(() => allowedNetworks({ EGRESS_ALLOW: wrong }), /EGRESS_ALLOW: .* is no network/, wrong);
  }
});

test('an address that no setting names is not reached, whatever its name', async () => {
  let calls = 0;
  const listener = createServer((_, answer) => answer.end(`call ${(calls += 1)}`)).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const { port } = listener.address();
  const called = async (host) => {
    const answer = await fetch(`${origin}/call?url=${encodeURIComponent(`http://${host}:${port}/`)}`);
    return `${answer.status} ${await answer.text()}`;
  };
  try {
    for (const host of ['127.0.0.1', 'localhost']) assert.equal(await called(host), '502 not reached', host);
    for (const vars of [
      { PROVIDERS: providers(`http://127.0.0.1:${port}`) },
      { LOCAL: 'true' },
      { EGRESS_ALLOW: '127.0.0.0/8' },
    ]) {
      await stop(child);
      await serve(vars);
      for (const host of ['127.0.0.1', 'localhost']) assert.equal(await called(host), `200 call ${calls}`, JSON.stringify(vars));
    }
    assert.equal(calls, 6, 'three settings, two names');
    await stop(child);
    await serve({ EGRESS_ALLOW: '10.0.0.0/8 127.0.0.2' });
    assert.equal(await called('127.0.0.1'), '502 not reached', 'another network');
    assert.equal(calls, 6);
  } finally {
    listener.close();
  }
});
