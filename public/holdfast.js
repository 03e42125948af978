/**
 * Browser client of Holdfast: start a generation, read it byte by byte, lose the connection, read on.
 *
 * ```js
 * import { Holdfast } from '/holdfast.js';
 *
 * const holdfast = new Holdfast({ key });
 * const generation = await holdfast.start({ model: 'gpt-4o', stream: true, messages });
 * for await (const bytes of generation.follow()) show(bytes);   // goes on over lost connections by itself
 * ```
 *
 * A page of yours has no key: it gets short-lived tokens from your server, which mints them with {@link Holdfast#mintToken}.
 *
 * ```js
 * const token = async () => (await fetch('/holdfast-token', { method: 'POST' })).json();   // {token, expires_at}
 * const holdfast = new Holdfast({ token, origin: 'https://holdfast.example' });
 * ```
 *
 * No dependency, no storage: key and token live in this object only. It runs in every browser with `fetch` streams and in
 * Node 20 and newer. Use the official OpenAI SDK where a lost connection may be an error; use this where it may not.
 *
 * @module holdfast
 */

/**
 * A generation as `GET /v1/generations/{id}` shows it; the members that this client or most callers look at.
 * @typedef {object} GenerationStatus
 * @property {string} id `gen_…`
 * @property {string} reservation_id `res_…`
 * @property {{state: 'connected'|'disconnected'|'reconnected', readers: number, furthest_offset: number}} connection
 * @property {{state: string, epoch: number, attempt_id: string, operation_id: ?string, finish_reason: ?string, status: ?number}} upstream
 * @property {'active'|'detached'|'cancellation_requested'|'completed'|'cancelled'|'failed'|'expired'|'compensated'} lifecycle
 * @property {'pending'|'committed'|'released'|'expired'|'disputed'} settlement
 * @property {boolean} settled The tenant's ledger has acknowledged the settlement.
 * @property {?object} usage Tokens, `kind` says whether they are `exact` or `at_least`.
 * @property {{hold_micros: number, settled_micros: ?number, estimated: boolean}} cost In micro-USD.
 * @property {{length: number, closed: boolean, deleted: boolean}} log
 * @property {?string} reason Why it ended as it did.
 */

/** Why a call failed, in words for a person and a stable `code` for a program. */
export class HoldfastError extends Error {
  /**
   * @param {string} message
   * @param {object} [facts]
   * @param {?number} [facts.status] HTTP status; `null` when no answer came.
   * @param {string} [facts.code] Stable name, such as `budget_exhausted`; `connection_lost` when the network failed.
   * @param {boolean} [facts.retryable] The same call may succeed later.
   * @param {?string} [facts.generationId] The generation that the refused request made, if it made one.
   * @param {?number} [facts.retryAfterMs] How long the server asks to wait.
   * @param {?number} [facts.logLength] Where the log ends, when the offset lies beyond it.
   * @param {unknown} [facts.cause]
   */
  constructor(message, facts = {}) {
    super(message, { cause: facts.cause });
    this.name = 'HoldfastError';
    this.status = facts.status ?? null;
    this.code = facts.code ?? 'unknown';
    this.retryable = facts.retryable ?? false;
    this.generationId = facts.generationId ?? null;
    this.retryAfterMs = facts.retryAfterMs ?? null;
    this.logLength = facts.logLength ?? null;
  }
}

/**
 * A token as `POST /v1/tokens` answers it.
 * @typedef {object} MintedToken
 * @property {string} token `hft_…`
 * @property {number} expires_at Unix milliseconds.
 */

/** A deployment, seen by the holder of one client key or of browser tokens. */
export class Holdfast {
  #bearer;
  #origin;
  #fetch;

  /**
   * @param {object} options
   * @param {string} [options.key] Client key, `hfk_…`: for servers, and for pages that nobody else can open.
   * @param {string|(() => MintedToken|string|Promise<MintedToken|string>)} [options.token] Browser token, `hft_…`, or what
   *   fetches one. It is asked again when a token is about to expire, was refused, or may have been: a page of another
   *   origin cannot tell a refused token from a lost connection.
   * @param {string} [options.origin] Scheme, host and port of the deployment; the page's own by default.
   * @param {typeof fetch} [options.fetch] For tests and proxies.
   */
  constructor({ key, token, origin = '', fetch = globalThis.fetch.bind(globalThis) }) {
    this.#bearer = new Bearer(token ?? key);
    this.#origin = origin;
    this.#fetch = fetch;
  }

  /**
   * Starts a generation. An idempotency key goes with it, so a POST whose answer was lost on the way is repeated
   * without harm: it joins the generation that the first one made.
   *
   * @param {object} body Body of `POST /v1/chat/completions`.
   * @param {object} [options]
   * @param {string} [options.idempotencyKey] 1 to 255 visible ASCII characters; random by default.
   * @param {'cancel'|'detach'} [options.onDisconnect] Overrides the route's policy, where the route allows it.
   * @param {number} [options.attempts] How often the POST is sent at most when no answer comes.
   * @param {AbortSignal} [options.signal] Drops the connection, before the answer or while it is read.
   * @returns {Promise<Generation>}
   * @throws {HoldfastError} What was refused; the provider's own error too.
   */
  async start(body, { idempotencyKey = randomKey(), onDisconnect, attempts = 3, signal } = {}) {
    const headers = { 'content-type': 'application/json', 'idempotency-key': idempotencyKey };
    if (onDisconnect) headers['holdfast-on-disconnect'] = onDisconnect;
    const request = { method: 'POST', headers, body: JSON.stringify(body) };
    for (let attempt = 1; ; attempt += 1) {
      const connection = new Connection(signal);
      try {
        const response = await this.call('/v1/chat/completions', { ...request, signal: connection.signal });
        const id = response.headers.get('x-generation-id');
        return new Generation(this, { id, idempotencyKey, response, connection });
      } catch (error) {
        connection.close();
        if (!['connection_lost', 'token_unavailable'].includes(error.code) || attempt >= attempts) throw error;
        await pause(backoffMs(attempt), signal);
      }
    }
  }

  /**
   * A generation that was started elsewhere or earlier.
   * @param {string} id `gen_…`
   * @param {number} [offset] First byte to read.
   */
  open(id, offset = 0) {
    return new Generation(this, { id, offset });
  }

  /**
   * The generation of an idempotency key, for a client that was cut off before the headers.
   * @param {string} idempotencyKey
   * @returns {Promise<?GenerationStatus>}
   */
  async find(idempotencyKey) {
    const found = await this.#json(`/v1/generations?idempotency_key=${encodeURIComponent(idempotencyKey)}`);
    return found.data[0] ?? null;
  }

  /**
   * Mints a browser token. It takes a key: call it on your server, for whom you have authenticated yourself.
   * @param {object} [limits] What is left out does not limit it.
   * @param {string[]} [limits.routes] Names of the routes that it may use.
   * @param {string[]} [limits.origins] The origins that may use it, of those that the tenant allows.
   * @param {string} [limits.generation] The only generation that it may read.
   * @param {'read'|'run'} [limits.may] `read` starts and cancels nothing.
   * @param {number} [limits.expires_in_s] 1 to 3600; 600 by default.
   * @returns {Promise<MintedToken>}
   */
  mintToken(limits = {}) {
    const headers = { 'content-type': 'application/json' };
    return this.#json('/v1/tokens', { method: 'POST', headers, body: JSON.stringify(limits) });
  }

  /** What the tenant has, holds and has spent, in micro-USD. It takes a key. */
  balance() {
    return this.#json('/v1/balance');
  }

  /** @returns {Promise<GenerationStatus>} */
  status(id) {
    return this.#json(`/v1/generations/${id}`);
  }

  /** Asks for cancellation. Repeating it has the same answer; whether it took effect is in the status. */
  cancel(id) {
    return this.#json(`/v1/generations/${id}/cancel`, { method: 'POST' });
  }

  /**
   * The whole stored answer.
   * @returns {Promise<?Uint8Array>} `null` while the generation runs.
   */
  async result(id) {
    const response = await this.call(`/v1/generations/${id}/result`);
    return response.status === 202 ? null : new Uint8Array(await readBody(response));
  }

  async #json(path, init) {
    const text = new TextDecoder().decode(await readBody(await this.call(path, init)));
    return JSON.parse(text);
  }

  /**
   * One HTTP request with the key or token. Answers below 400 are returned, all others thrown. A refused token is
   * replaced once.
   * @returns {Promise<Response>}
   * @throws {HoldfastError}
   */
  async call(path, init = {}) {
    for (let attempt = 1; ; attempt += 1) {
      const bearer = await this.#bearer.get();
      const headers = { ...init.headers, authorization: `Bearer ${bearer}` };
      let response;
      try {
        response = await this.#fetch(this.#origin + path, { ...init, headers, cache: 'no-store' });
      } catch (error) {
        if (init.signal?.aborted) throw error;
        this.#bearer.forget(bearer);
        throw connectionLost(error);
      }
      if (response.status < 400) return response;
      const replaced = response.status === 401 && this.#bearer.forget(bearer);
      if (!replaced || attempt > 1) throw await refusal(response);
      await response.body?.cancel();
    }
  }
}

/** A token is replaced so long before its end, in milliseconds: clocks differ, and requests take their time. */
const TOKEN_MARGIN_MS = 10_000;

/** What goes behind `Bearer`: a fixed text, or the last token of a provider for as long as it is good. */
class Bearer {
  #provider;
  #kept;
  #asking = null;

  constructor(source) {
    this.#provider = typeof source === 'function' ? source : null;
    this.#kept = this.#provider ? null : { token: source };
  }

  /** The provider is asked once for all who ask at the same time. */
  async get() {
    if (this.#kept && Date.now() < (this.#kept.expires_at ?? Infinity) - TOKEN_MARGIN_MS) return this.#kept.token;
    const asking = (this.#asking ??= this.#ask());
    try {
      return (await asking).token;
    } finally {
      if (this.#asking === asking) this.#asking = null;
    }
  }

  async #ask() {
    try {
      const answer = await this.#provider();
      this.#kept = typeof answer === 'string' ? { token: answer } : { token: answer.token, expires_at: answer.expires_at };
      return this.#kept;
    } catch (cause) {
      if (cause instanceof HoldfastError) throw cause;
      throw new HoldfastError('No token could be had.', { code: 'token_unavailable', retryable: true, cause });
    }
  }

  /** Drops a token that may be no good; false when there is no other to be had. */
  forget(token) {
    if (this.#kept?.token === token && this.#provider) this.#kept = null;
    return this.#provider !== null;
  }
}

/** One generation and this client's place in it. */
export class Generation {
  #holdfast;
  #response;
  #connection;

  /** Made by {@link Holdfast#start} and {@link Holdfast#open}. */
  constructor(holdfast, { id, idempotencyKey = null, offset = 0, response = null, connection = null }) {
    this.#holdfast = holdfast;
    this.#response = response;
    this.#connection = connection;
    /** `gen_…` */
    this.id = id;
    /** The key that it was started with, if it was started here. */
    this.idempotencyKey = idempotencyKey;
    /** Bytes that this client has received: where it reads on. */
    this.offset = offset;
    /** The server ended the stream. Whether the log ends there too, {@link Generation#follow} makes sure. */
    this.ended = false;
  }

  /** Whether a connection is open. */
  get connected() {
    return this.#connection !== null && !this.#connection.closed;
  }

  /** Closes this client's connection, for real. What happens to the generation is the route's policy. */
  drop() {
    this.#connection?.close();
  }

  /**
   * Reads over one connection, from `offset` on. Ends at the end of the stream (`ended` is true then) or after
   * {@link Generation#drop}. Call it again to read on from the very next byte.
   *
   * @param {object} [options]
   * @param {AbortSignal} [options.signal] Drops the connection.
   * @returns {AsyncGenerator<Uint8Array, void, void>}
   * @throws {HoldfastError} `connection_lost`, or what was refused.
   */
  async *read({ signal } = {}) {
    const connection = this.#connect(signal);
    try {
      const response = this.#response ?? (await this.#open(connection));
      this.#response = null;
      for await (const bytes of chunksOf(response)) {
        this.offset += bytes.byteLength;
        yield bytes;
      }
      this.ended = !connection.closed;
    } catch (error) {
      if (!connection.closed) throw error instanceof HoldfastError ? error : connectionLost(error);
    } finally {
      connection.close();
      this.#connection = null;
    }
  }

  /** The connection that `start` opened, unless it was dropped meanwhile; else a new one. */
  #connect(signal) {
    if (this.#connection && !this.#response) throw new HoldfastError('This generation is being read already.', { code: 'busy' });
    if (!this.#response || this.#connection.closed) {
      this.#response = null;
      this.#connection = new Connection(signal);
    } else {
      this.#connection.follow(signal);
    }
    return this.#connection;
  }

  #open({ signal }) {
    return this.#holdfast.call(`/v1/generations/${this.id}/stream?offset=${this.offset}`, { signal });
  }

  /**
   * Reads to the end of the log, over as many connections as it takes. Ends early only after {@link Generation#drop}
   * or when `signal` aborts.
   *
   * @param {object} [options]
   * @param {number} [options.attempts] Failures in a row, without a new byte, after which it gives up.
   * @param {AbortSignal} [options.signal]
   * @param {(offset: number) => void} [options.onReconnect] Told where a new connection reads on.
   * @returns {AsyncGenerator<Uint8Array, void, void>}
   */
  async *follow({ attempts = 8, signal, onReconnect } = {}) {
    for (let failures = 0; ; ) {
      const before = this.offset;
      let failure = connectionLost(null);
      try {
        yield* this.read({ signal });
        if (!this.ended || (await this.isComplete())) return;
      } catch (error) {
        if (!error.retryable) throw error;
        failure = error;
      }
      failures = this.offset > before ? 1 : failures + 1;
      if (failures >= attempts) throw failure;
      await pause(failure.retryAfterMs ?? backoffMs(failures), signal);
      onReconnect?.(this.offset);
    }
  }

  /** Whether the log is closed and all of it was received: a stream that merely ended may have been cut on the way. */
  async isComplete() {
    const { log } = await this.status();
    return log.closed && this.offset >= log.length;
  }

  /** @returns {Promise<GenerationStatus>} */
  status() {
    return this.#holdfast.status(this.id);
  }

  /** See {@link Holdfast#cancel}. */
  cancel() {
    return this.#holdfast.cancel(this.id);
  }

  /** See {@link Holdfast#result}. */
  result() {
    return this.#holdfast.result(this.id);
  }
}

/** One HTTP exchange that can be closed from outside. */
class Connection {
  #controller = new AbortController();

  constructor(signal) {
    this.follow(signal);
  }

  follow(signal) {
    if (signal?.aborted) this.close();
    signal?.addEventListener('abort', () => this.close(), { once: true, signal: this.signal });
  }

  get signal() {
    return this.#controller.signal;
  }

  get closed() {
    return this.signal.aborted;
  }

  close() {
    this.#controller.abort();
  }
}

/** The body in pieces, as they come. Not `for await` over the body itself: not every browser has that. */
async function* chunksOf(response) {
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

async function readBody(response) {
  try {
    return await response.arrayBuffer();
  } catch (error) {
    throw connectionLost(error);
  }
}

const connectionLost = (cause) =>
  new HoldfastError('The connection was lost, or the server cannot be reached.', { code: 'connection_lost', retryable: true, cause });

/** Reads a problem document (own routes) or an OpenAI envelope (proxied route). */
async function refusal(response) {
  const { status, headers } = response;
  const document = await response.json().catch(() => ({}));
  const envelope = document.error ?? {};
  const retryAfter = Number(headers.get('retry-after'));
  return new HoldfastError(document.detail ?? envelope.message ?? `The server answered ${status}.`, {
    status,
    code: document.code ?? envelope.code ?? envelope.type,
    retryable: document.retryable ?? [408, 429, 500, 502, 503, 504].includes(status),
    generationId: headers.get('x-generation-id'),
    retryAfterMs: retryAfter > 0 ? retryAfter * 1_000 : null,
    logLength: document.log_length,
  });
}

/** 32 random hex digits. Not `randomUUID`: that needs a secure context. */
function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Doubles from a quarter of a second to eight, spread so that many clients do not come back at once. */
const backoffMs = (failures) => Math.min(250 * 2 ** (failures - 1), 8_000) * (0.5 + Math.random() / 2);

/** Waits; at once over when `signal` aborts. */
function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true });
    if (signal?.aborted) resolve();
  });
}
