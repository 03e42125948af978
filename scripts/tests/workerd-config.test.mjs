// Real workerd serves a small Worker with the configuration that is written for the product.

import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { background, stop, untilGone } from '../lib/children.mjs';
import { freePort, untilHealthy } from '../lib/http.mjs';
import { workerdBinary } from '../lib/paths.mjs';
import { writeConfig } from '../workerd-config.mjs';

const NASTY = { QUOTES: `"double" 'single' \\ back`, LINES: 'a\nb\r\n\tc\u0001\u007f', WIDE: 'é 漢字 🎈', DOLLARS: '${HOME} $1 $& #{x}', EMPTY: '' };

/** Answers with its variables, passes on to the assets, and counts in an object's SQL storage. */
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
    const path = new URL(request.url).pathname;
    if (path === '/healthz') return new Response(wasm instanceof WebAssembly.Module ? 'ok' : 'bad');
    if (path === '/vars') return Response.json(vars);
    if (path === '/count') return RESERVATION.get(RESERVATION.idFromName('a')).fetch(request);
    return ASSETS.fetch(request);
  },
};`;

const EMPTY_WASM = new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]);
const folder = mkdtempSync(join(tmpdir(), 'holdfast-config-'));
let child;
let origin;

async function serve() {
  const port = await freePort();
  const out = join(folder, 'made', 'config.capnp');
  const config = await writeConfig({ out, port, storage: join(folder, 'not', 'there', 'yet'), build: join(folder, 'build'), vars: NASTY });
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
