// A page of another origin in a real Chromium: with a token it streams and resumes, if the tenant allows its origin.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { createServer } from 'node:http';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';

import { Holdfast } from '../../public/holdfast.js';
import { inRoot } from '../../scripts/lib/paths.mjs';
import { bold, warn } from '../../scripts/lib/report.mjs';
import { findChromium, launch, startWorld } from './world.mjs';

const executablePath = findChromium();
if (!executablePath) {
  warn(bold('the browser tests are SKIPPED: no Chromium was found (Debian: apt-get install chromium; or set HOLDFAST_CHROMIUM)'));
}

/** Somebody's own site: a page, the client module, and `/token`, which mints for its visitors. */
async function startSite() {
  const site = { mint: null };
  const server = createServer(async (request, response) => {
    if (request.url === '/holdfast.js') {
      response.setHeader('content-type', 'text/javascript');
      return createReadStream(inRoot('public', 'holdfast.js')).pipe(response);
    }
    if (request.url === '/token') return response.end(JSON.stringify(await site.mint()));
    response.setHeader('content-type', 'text/html');
    response.end('<!doctype html><title>Site</title>');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return Object.assign(site, {
    origin: `http://127.0.0.1:${server.address().port}`,
    end() {
      server.closeAllConnections();
      server.close();
    },
  });
}

const chat = (tokens, tag) => ({ model: `sim-detach?tokens=${tokens}&interval_ms=20&tag=${tag}`, stream: true, messages: [{ role: 'user', content: 'Hold fast.' }] });

describe('a page of another origin', { skip: executablePath ? false : 'no Chromium' }, () => {
  let world;
  let site;
  let browser;
  let page;
  /** Holds the key of a tenant that allows the site's origin. */
  let owner;
  /** Holds the key of a tenant that allows none. */
  let stranger;

  before(async () => {
    [world, site] = await Promise.all([startWorld(), startSite()]);
    browser = await launch(executablePath);
    const holder = async (id, config) => new Holdfast({ key: await world.createTenant(id, config), origin: world.origin });
    owner = await holder('open', { allowed_origins: [site.origin] });
    stranger = await holder('closed', {});
  });
  after(async () => {
    await browser?.close();
    site?.end();
    await world?.end();
  });
  beforeEach(async () => {
    site.mint = () => owner.mintToken({ origins: [site.origin] });
    page = await browser.newPage();
    page.setDefaultTimeout(20_000);
    await page.goto(site.origin);
  });
  afterEach(() => page.close());

  /** Runs in the page: `act(holdfast, argument)`. The outcome is what it returns, or what it threw. */
  const inPage = (act, argument, token = null) =>
    page.evaluate(
      async ([source, given, origin, fixed]) => {
        const { Holdfast: Client } = await import('/holdfast.js');
        const fetchToken = async () => (await fetch('/token')).json();
        const holdfast = new Client({ token: fixed ?? fetchToken, origin });
        try {
          return { value: await new Function(`return ${source}`)()(holdfast, given) };
        } catch (error) {
          return { code: error.code, status: error.status };
        }
      },
      [`${act}`, argument, world.origin, token],
    );

  const hex = (bytes) => Buffer.from(bytes).toString('hex');
  const finished = async (holdfast, tag) => {
    const generation = await holdfast.start(chat(3, tag));
    for await (const bytes of generation.follow()) assert.ok(bytes.length);
    return generation.id;
  };
  const callsOf = async (tag) => (await world.upstreamCalls()).filter((call) => JSON.stringify(call).includes(tag));

  test('streams with a token, drops in the middle, and reads on at the very next byte', async () => {
    const { value, code } = await inPage(async (holdfast, body) => {
      const generation = await holdfast.start(body);
      const parts = [[], []];
      for await (const bytes of generation.read()) {
        parts[0].push(...bytes);
        if (parts[0].length > 2_000) generation.drop();
      }
      const stoppedAt = generation.offset;
      for await (const bytes of generation.follow()) parts[1].push(...bytes);
      return { id: generation.id, stoppedAt, parts };
    }, chat(60, 'page-streams'));
    assert.equal(code, undefined);
    const log = await owner.result(value.id);
    assert.ok(value.stoppedAt > 2_000 && value.stoppedAt < log.length, `${value.stoppedAt} of ${log.length}`);
    assert.equal(value.parts[0].length, value.stoppedAt);
    assert.equal(hex(value.parts.flat()), hex(log));
    assert.equal((await callsOf('page-streams')).length, 1);
  });

  test('reads the headers and the errors that are for it', async () => {
    const id = await finished(owner, 'page-reads');
    const { value } = await inPage(async (holdfast, id_) => {
      const stream = await holdfast.call(`/v1/generations/${id_}/stream?offset=0`);
      const missing = await holdfast.status(`gen_${'0'.repeat(32)}`).catch(({ status, code }) => ({ status, code }));
      const balance = await holdfast.balance().catch(({ status, code }) => ({ status, code }));
      return { names: ['x-generation-id', 'x-reservation-id', 'location'].map((name) => stream.headers.get(name)), missing, balance };
    }, id);
    assert.equal(value.names[0], id);
    assert.match(value.names[1], /^res_/);
    assert.equal(value.names[2], `/v1/generations/${id}`);
    assert.deepEqual(value.missing, { status: 404, code: 'not_found' });
    assert.deepEqual(value.balance, { status: 403, code: 'token_not_allowed' });
  });

  test('is not served where the tenant has not allowed its origin: nothing is started, nothing can be read', async () => {
    const id = await finished(stranger, 'closed-reads');
    site.mint = () => stranger.mintToken();
    const start = await inPage((holdfast, body) => holdfast.start(body, { attempts: 1 }).then(() => 'started'), chat(3, 'page-starts'));
    assert.deepEqual(start, { code: 'connection_lost', status: null });
    assert.deepEqual(await callsOf('page-starts'), []);
    assert.deepEqual(await inPage((holdfast, id_) => holdfast.status(id_), id), { code: 'connection_lost', status: null });
    assert.equal((await stranger.balance()).slots_in_use, 0);
  });

  test('an expired token is refused, and a new one serves', async () => {
    const id = await finished(owner, 'page-expires');
    const { token } = await owner.mintToken({ expires_in_s: 1 });
    const status = (holdfast, id_) => holdfast.status(id_).then((found) => found.id);
    assert.deepEqual(await inPage(status, id, token), { value: id });
    await new Promise((resolve) => setTimeout(resolve, 1_200));
    assert.deepEqual(await inPage(status, id, token), { code: 'connection_lost', status: null });
    await assert.rejects(new Holdfast({ token, origin: world.origin }).status(id), { status: 401, code: 'token_expired' });

    let minted = 0;
    site.mint = async () => {
      minted += 1;
      return minted === 1 ? token : owner.mintToken();
    };
    const read = await inPage(async (holdfast, id_) => {
      const bytes = [];
      for await (const piece of holdfast.open(id_).follow()) bytes.push(...piece);
      return bytes;
    }, id);
    assert.equal(hex(read.value), hex(await owner.result(id)));
    assert.equal(minted, 2);
  });

  test('a token of one generation reads that and nothing else', async () => {
    const [mine, other] = [await finished(owner, 'page-mine'), await finished(owner, 'page-other')];
    site.mint = () => owner.mintToken({ generation: mine });
    const { value } = await inPage(
      async (holdfast, [mine_, other_, body]) => {
        const refused = ({ status, code }) => `${status} ${code}`;
        return [
          (await holdfast.result(mine_)).length,
          await holdfast.status(other_).catch(refused),
          await holdfast.result(other_).catch(refused),
          await holdfast.cancel(mine_).catch(refused),
          await holdfast.start(body).catch(refused),
        ];
      },
      [mine, other, chat(3, 'page-limited')],
    );
    assert.deepEqual(value, [(await owner.result(mine)).length, '404 not_found', '404 not_found', '403 token_not_allowed', '403 token_not_allowed']);
    assert.deepEqual(await callsOf('page-limited'), []);
  });
});
