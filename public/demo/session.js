/**
 * One generation as this page lives through it: what it received over which connection, what the server says, what
 * happened when. Knows nothing of the document.
 */

import { EventReader, chatEvent } from '../events.js';
import { compare } from './proof.js';
import { bytes, count, words } from './format.js';

const POLL_MS = 250;
const RESULT_WITHIN_MS = 10_000;

/** What is watched for the history: name and where it stands in the status. */
const WATCHED = [
  ['connection', (status) => status.connection.state],
  ['upstream', (status) => status.upstream.state],
  ['reservation', (status) => status.lifecycle],
  ['settlement', (status) => status.settlement],
];

/** States that lie before another and are often over before anybody can ask. */
const IMPLIED = { processing: ['prepared', 'submitted'], completed: ['submitted', 'processing'], cancelled: ['cancellation_requested'] };

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A generation and this page's part in it. Dispatches `change` when there is something new to show. */
export class Session extends EventTarget {
  #holdfast;
  #generation = null;
  #reader = new EventReader();
  #pieces = [];
  #over = false;

  #lostContact = null;

  /**
   * @param {import('../holdfast.js').Holdfast} holdfast
   * @param {object} facts
   * @param {number} facts.number Tells the sessions of a page apart.
   * @param {number} facts.tokens How many tokens are asked for.
   */
  constructor(holdfast, { number, tokens }) {
    super();
    this.#holdfast = holdfast;
    this.number = number;
    this.tokens = tokens;
    /** `idle`, `starting`, `reading`, `dropped` or `ended`. */
    this.phase = 'idle';
    /** What went wrong, in words; `null` when nothing did. */
    this.problem = null;
    /** The error with which the stream itself ended, in words. */
    this.streamError = null;
    /** The last status from the server. */
    this.status = null;
    /** One entry for each connection: first byte, byte after the last, text. */
    this.connections = [];
    /** Bytes that were stored while nobody read: from, to. */
    this.away = [];
    /** When and what. */
    this.history = [];
    /** Where the log and the page were compared. */
    this.proof = null;
    /** States that were seen, by machine. */
    this.seen = new Set();
  }

  get id() {
    return this.#generation?.id ?? null;
  }

  /** Bytes received, over all connections. */
  get offset() {
    return this.#generation?.offset ?? 0;
  }

  /** Bytes in the log, as far as this page knows. */
  get logLength() {
    return Math.max(this.status?.log.length ?? 0, this.offset);
  }

  /** The generation has ended and its settlement has been acknowledged. */
  get settled() {
    return this.status?.settled ?? false;
  }

  /** The generation has ended. */
  get closed() {
    return this.status?.log.closed ?? false;
  }

  /** Starts a generation and reads it until it ends or the connection drops. */
  async start(body) {
    this.#enter('starting');
    try {
      this.#generation = await this.#holdfast.start(body);
    } catch (error) {
      this.#fail(error);
      if (!error.generationId) return;
      this.#generation = this.#holdfast.open(error.generationId);
      await this.#poll();
      return;
    }
    this.#note(`started ${this.id}`);
    await Promise.all([this.#read(), this.#poll()]);
  }

  /** Closes this page's connection. */
  drop() {
    this.#generation.drop();
  }

  /** Reads on where this page stopped. */
  async resume() {
    await this.#refresh();
    await this.#read();
  }

  /** Asks for cancellation. */
  async cancel() {
    try {
      const { effect } = await this.#generation.cancel();
      this.#note(effect === 'requested' ? 'cancellation requested' : 'cancel came after the end: no effect');
      await this.#refresh();
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Another generation takes the page: this one is not looked at any more. It may go on. */
  leave() {
    this.#over = true;
    this.#generation?.drop();
  }

  async #read() {
    const start = this.offset;
    const connection = { from: start, to: start, text: '' };
    if (this.connections.length) this.#note(`reading on at byte ${count(start)}`);
    this.connections.push(connection);
    this.#enter('reading');
    try {
      for await (const piece of this.#generation.read()) this.#take(connection, piece);
    } catch (error) {
      this.#fail(error);
    }
    if (this.#generation.ended) return this.#finish();
    this.away.push({ from: this.offset, to: this.offset });
    this.#note(`connection dropped after ${bytes(this.offset)}`);
    this.#enter('dropped');
  }

  #take(connection, piece) {
    this.#pieces.push(piece);
    connection.to += piece.length;
    const away = this.away.at(-1);
    if (away && !away.over) {
      away.over = true;
      away.to = Math.max(away.to, this.logLength);
    }
    for (const event of this.#reader.push(piece).map(chatEvent)) {
      connection.text += event.text;
      if (event.error) this.#endInError(event.error);
    }
    this.#changed();
  }

  #endInError(message) {
    this.streamError = message;
    this.#note(`the stream says: ${message}`);
  }

  async #finish() {
    this.#note(`stream ended at byte ${count(this.offset)}`);
    this.#enter('ended');
    try {
      this.proof = await compare(this.#pieces, await this.#result());
      this.#note(this.proof.equal ? 'every byte arrived exactly once' : 'what arrived differs from the log');
    } catch (error) {
      this.#fail(error);
    }
    this.#changed();
  }

  async #result() {
    for (const giveUpAt = Date.now() + RESULT_WITHIN_MS; Date.now() < giveUpAt; await wait(POLL_MS)) {
      const result = await this.#generation.result();
      if (result) return result;
    }
    throw new Error('The stream ended, but the generation did not.');
  }

  /** Asks for the status until there is nothing more to learn. */
  async #poll() {
    while (!this.#over) {
      await this.#refresh();
      if (this.settled && (this.phase === 'ended' || this.phase === 'idle')) return;
      await wait(POLL_MS);
    }
  }

  async #refresh() {
    try {
      const status = await this.#generation.status();
      if (this.problem === this.#lostContact) this.problem = null;
      this.#lostContact = null;
      this.#compareWithLast(status);
      this.status = status;
    } catch (error) {
      this.#lostContact = error.message;
      this.problem = error.message;
    }
    this.#changed();
  }

  #compareWithLast(status) {
    const away = this.away.at(-1);
    if (away && !away.over) away.to = Math.max(away.to, status.log.length);
    for (const [machine, state] of WATCHED) {
      const now = state(status);
      this.seen.add(`${machine} ${now}`);
      for (const before of IMPLIED[now] ?? []) this.seen.add(`${machine} ${before}`);
      if (!this.status || state(this.status) !== now) this.#note(`${machine}: ${words(now)}`);
    }
    if (status.settled && !this.settled) this.#note('the tenant’s ledger has acknowledged the settlement');
  }

  #enter(phase) {
    this.phase = phase;
    if (phase === 'starting') this.problem = null;
    this.#changed();
  }

  #fail(error) {
    this.problem = error.message;
    if (this.phase === 'starting') this.phase = 'idle';
    this.#note(`problem: ${error.message}`);
    this.#changed();
  }

  #note(text) {
    this.history.push({ at: new Date(), text });
  }

  #changed() {
    if (!this.#over) this.dispatchEvent(new Event('change'));
  }
}
