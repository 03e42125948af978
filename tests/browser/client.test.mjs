// public/holdfast.js and public/events.js against a server that loses connections in every way.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { after, before, beforeEach, test } from 'node:test';

import { EventReader, chatEvent } from '../../public/events.js';
import { Holdfast, HoldfastError } from '../../public/holdfast.js';

const LOG = Buffer.from(Array.from({ length: 40 }, (_, n) => `data: {"choices":[{"delta":{"content":"é${n}"}}]}\n\n`).join('') + 'data: [DONE]\n\n');
const ID = `gen_${'a'.repeat(32)}`;
const BODY = { model: 'm', stream: true, messages: [] };

let server;
let origin;
let requests;
/** What the server does with each further connection that carries the stream: how it ends, after how many bytes. */
let plan;
/** The tokens that the server takes; all when `null`. */
let accepted;

function send(request, response) {
  const offset = Number(new URL(request.url, origin).searchParams.get('offset') ?? 0);
  const { bytes = LOG.length, end = 'end', status } = plan.shift() ?? {};
  if (status) return response.writeHead(status, { 'content-type': 'application/problem+json' }).end('{"detail":"No.","code":"refused","retryable":true}');
  if (end === 'before-head') return response.destroy();
  response.writeHead(200, { 'content-type': 'text/event-stream', 'x-generation-id': ID });
  const piece = LOG.subarray(offset, offset + bytes);
  const close = { end: () => response.end(), reset: () => response.destroy(), hang: () => {} }[end];
  return piece.length ? response.write(piece, close) : close();
}

function answer(request, response) {
  const { authorization, 'idempotency-key': idempotencyKey } = request.headers;
  requests.push({ method: request.method, url: request.url, idempotencyKey, authorization });
  const json = (document, status = 200) => response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(document));
  if (accepted && !accepted.includes(authorization)) return json({ detail: 'Expired.', code: 'token_expired', retryable: false }, 401);
  if (request.url === '/v1/tokens') return json({ token: 'hft_minted', expires_at: 1 });
  if (request.url.startsWith('/v1/chat') || request.url.includes('/stream')) return send(request, response);
  if (request.url.endsWith('/result')) return json({}, 202);
  return json({ id: ID, log: { length: LOG.length, closed: true } });
}

before(async () => {
  server = createServer(answer).listen(0, '127.0.0.1');
  await once(server, 'listening');
  origin = `http://127.0.0.1:${server.address().port}`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});
beforeEach(() => {
  requests = [];
  plan = [];
  accepted = null;
});

const client = () => new Holdfast({ key: 'hfk_demo_x', origin });

async function collect(stream) {
  const pieces = [];
  for await (const piece of stream) pieces.push(piece);
  return Buffer.concat(pieces);
}

test('follow reads the whole log over resets, early clean ends, refusals that pass and unreachable moments', async () => {
  plan = [
    { bytes: 7, end: 'reset' }, { bytes: 0, end: 'reset' }, { bytes: 100, end: 'end' }, { status: 503 },
    { end: 'before-head' }, { bytes: 1, end: 'end' }, {},
  ];
  const generation = await client().start(BODY);
  const resumedAt = [];
  const bytes = await collect(generation.follow({ onReconnect: (offset) => resumedAt.push(offset) }));
  assert.deepEqual(bytes, LOG);
  assert.deepEqual(resumedAt, [7, 7, 107, 107, 107, 108]);
  assert.equal(requests.filter(({ method }) => method === 'POST').length, 1);
});

test('follow gives up after so many failures without a new byte', async () => {
  plan = Array.from({ length: 9 }, () => ({ bytes: 0, end: 'reset' }));
  await assert.rejects(collect(client().open(ID).follow({ attempts: 3 })), { code: 'connection_lost', retryable: true });
  assert.equal(requests.length, 3);
});

test('a POST whose answer is lost is repeated under the same idempotency key', async () => {
  plan = [{ end: 'before-head' }, {}];
  const generation = await client().start(BODY);
  assert.equal(generation.id, ID);
  const [first, second] = requests.map(({ idempotencyKey }) => idempotencyKey);
  assert.match(first, /^[0-9a-f]{32}$/);
  assert.equal(first, second);
  assert.deepEqual(await collect(generation.read()), LOG);
});

test('drop ends the reading without an error; the next read goes on at the next byte', async () => {
  plan = [{ bytes: 50, end: 'hang' }, {}];
  const generation = await client().start(BODY);
  const before = [];
  for await (const piece of generation.read()) {
    before.push(piece);
    generation.drop();
  }
  assert.deepEqual([generation.offset, generation.ended, generation.connected], [50, false, false]);
  const rest = await collect(generation.read());
  assert.equal(generation.ended, true);
  assert.deepEqual(Buffer.concat([...before, rest]), LOG);
  assert.equal(requests.at(-1).url, `/v1/generations/${ID}/stream?offset=50`);
});

test('a drop between the answer and the first read is a drop', async () => {
  plan = [{ bytes: 50, end: 'hang' }, {}];
  const generation = await client().start(BODY);
  generation.drop();
  assert.deepEqual(await collect(generation.read()), LOG);
  assert.equal(requests.at(-1).url, `/v1/generations/${ID}/stream?offset=0`);
});

test('one reader at a time', async () => {
  plan = [{ bytes: 50, end: 'hang' }];
  const generation = client().open(ID);
  const reading = generation.read();
  await reading.next();
  await assert.rejects(generation.read().next(), { code: 'busy' });
  await reading.return();
});

test('a refusal tells why, and a signal stops the waiting', async () => {
  plan = [{ status: 503 }];
  await assert.rejects(client().start(BODY), (error) => {
    assert.ok(error instanceof HoldfastError);
    assert.deepEqual([error.status, error.code, error.retryable, error.message], [503, 'refused', true, 'No.']);
    return true;
  });
  assert.equal(await client().result(ID), null);
  plan = Array.from({ length: 100 }, () => ({ bytes: 0, end: 'reset' }));
  const signal = AbortSignal.timeout(50);
  assert.deepEqual(await collect(client().open(ID).follow({ signal, attempts: 100 })), Buffer.alloc(0));
});

/** A client whose tokens are `hft_1`, `hft_2`, …; `minted` counts them. */
function tokenClient({ lifetimeMs = 60_000, delayMs = 0 } = {}) {
  const made = { minted: 0 };
  const token = async () => {
    made.minted += 1;
    const answer = { token: `hft_${made.minted}`, expires_at: Date.now() + lifetimeMs };
    await new Promise((resolve) => setTimeout(resolve, delayMs));
    return answer;
  };
  return Object.assign(made, { holdfast: new Holdfast({ token, origin }) });
}

const bearers = () => requests.map(({ authorization }) => authorization.replace('Bearer ', ''));

test('one token serves until it is about to expire, however many ask at once', async () => {
  const lasting = tokenClient({ delayMs: 20 });
  await Promise.all([lasting.holdfast.status(ID), lasting.holdfast.status(ID)]);
  await lasting.holdfast.status(ID);
  assert.deepEqual(bearers(), ['hft_1', 'hft_1', 'hft_1']);
  requests = [];
  const short = tokenClient({ lifetimeMs: 9_000 });
  await short.holdfast.status(ID);
  await short.holdfast.status(ID);
  assert.deepEqual(bearers(), ['hft_1', 'hft_2']);
});

test('a refused token is replaced once; a fixed one is not', async () => {
  accepted = ['Bearer hft_2'];
  const { holdfast } = tokenClient();
  assert.equal((await holdfast.status(ID)).id, ID);
  await holdfast.status(ID);
  assert.deepEqual(bearers(), ['hft_1', 'hft_2', 'hft_2']);
  requests = [];
  accepted = [];
  await assert.rejects(tokenClient().holdfast.status(ID), { status: 401, code: 'token_expired', message: 'Expired.' });
  await assert.rejects(new Holdfast({ token: 'hft_fixed', origin }).status(ID), { status: 401 });
  await assert.rejects(client().status(ID), { status: 401 });
  assert.deepEqual(bearers(), ['hft_1', 'hft_2', 'hft_fixed', 'hfk_demo_x']);
});

test('a page that cannot read why it was refused asks for a new token and reads on', async () => {
  plan = [{ bytes: 50, end: 'reset' }, { end: 'before-head' }, {}];
  const generation = await tokenClient().holdfast.start(BODY);
  assert.deepEqual(await collect(generation.follow()), LOG);
  assert.deepEqual(bearers().filter((_, n) => requests[n].url.includes('/stream')), ['hft_1', 'hft_2']);
  assert.equal(requests.filter(({ method }) => method === 'POST').length, 1);
});

test('a provider that fails is asked again; what it says is the cause', async () => {
  let calls = 0;
  const token = () => {
    calls += 1;
    if (calls === 1) throw new Error('offline');
    return 'hft_late';
  };
  const holdfast = new Holdfast({ token, origin });
  await assert.rejects(holdfast.status(ID), (error) => error.code === 'token_unavailable' && error.cause.message === 'offline');
  calls = 0;
  const generation = await new Holdfast({ token, origin }).start(BODY);
  assert.equal(generation.id, ID);
  assert.deepEqual(bearers(), ['hft_late']);
  generation.drop();
});

test('a server mints tokens with its key', async () => {
  assert.deepEqual(await client().mintToken({ routes: ['chat'] }), { token: 'hft_minted', expires_at: 1 });
  const [{ method, url, authorization }] = requests;
  assert.deepEqual([method, url, authorization], ['POST', '/v1/tokens', 'Bearer hfk_demo_x']);
});

test('events come out the same wherever the bytes are cut, and whatever ends the lines', () => {
  const source = 'data: {"choices":[{"delta":{"content":"é漢"}}]}\n\n: note\n\ndata: a\ndata: b\n\ndata: [DONE]\n\n';
  const expected = ['{"choices":[{"delta":{"content":"é漢"}}]}', 'a\nb', '[DONE]'];
  for (const lineEnd of ['\n', '\r\n', '\r']) {
    const bytes = new TextEncoder().encode(source.replaceAll('\n', lineEnd) + (lineEnd === '\r' ? ':' : ''));
    for (let cut = 0; cut <= bytes.length; cut += 1) {
      const reader = new EventReader();
      assert.deepEqual([...reader.push(bytes.subarray(0, cut)), ...reader.push(bytes.subarray(cut))], expected, `${cut}`);
    }
    const reader = new EventReader();
    assert.deepEqual([...bytes].flatMap((byte) => reader.push(Uint8Array.of(byte))), expected);
  }
});

test('chat events', () => {
  assert.deepEqual(chatEvent('{"choices":[{"delta":{"content":"x"}}]}'), { text: 'x', done: false, error: null });
  assert.deepEqual(chatEvent('{"choices":[],"usage":{}}'), { text: '', done: false, error: null });
  assert.deepEqual(chatEvent('[DONE]'), { text: '', done: true, error: null });
  assert.equal(chatEvent('{"error":{"message":"broke off"}}').error, 'broke off');
  assert.ok(chatEvent('{').error);
});
