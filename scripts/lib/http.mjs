// Small questions about HTTP servers on this machine.

import { createServer } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

import { PlainError } from './report.mjs';

const POLL_MS = 20;
/** A server that says why it cannot serve says it in its log, too: once more is enough. */
const POLL_UNABLE_MS = 500;
const ASK_TIMEOUT_MS = 5_000;
/** So long a server may say that it cannot serve before that counts: it may still be starting. */
const START_UP_GRACE_MS = 1_500;

function listens(port, host) {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(null));
    server.listen({ port, host }, () => {
      const taken = server.address().port;
      server.close(() => resolve(taken));
    });
  });
}

/** A port that is free now. */
export const freePort = (host = '127.0.0.1') => listens(0, host);

/** Says in plain words if somebody else listens on the port. */
export async function requireFreePort(port, how, host = '127.0.0.1') {
  if (await listens(port, host)) return;
  throw new PlainError(`Port ${port} on ${host} is in use.`, `End what listens there, or choose another: ${how}`);
}

/** The port that a person asked for by `--port` or PORT. */
export function choosePort(argument, fallback = 8787) {
  const port = Number(argument ?? process.env.PORT ?? fallback);
  if (Number.isInteger(port) && port > 0 && port < 65536) return port;
  throw new PlainError(`A port is a number from 1 to 65535, not '${argument ?? process.env.PORT}'.`);
}

/**
 * Waits until `GET url` answers 200. `gone` is a promise that rejects when the server died, so that nobody
 * waits for the dead. A server that goes on answering 503 with a `detail` has said why it cannot serve: that
 * detail is the failure, at once. Otherwise fails after `timeout_ms` with the last answer.
 */
export async function untilHealthy(url, { gone, timeout_ms = 60_000, remedy = '' }) {
  const deadline = Date.now() + timeout_ms;
  let last = { said: 'no answer' };
  let unable_since = null;
  let over = false;
  const poll = async () => {
    while (Date.now() < deadline) {
      if (over) return;
      last = await ask(url);
      if (last.said === 200) return;
      unable_since = last.detail ? (unable_since ?? Date.now()) : null;
      if (last.detail && Date.now() - unable_since >= START_UP_GRACE_MS) {
        throw new PlainError(`The server started, but cannot serve: ${last.detail}`, remedy);
      }
      await delay(last.detail ? POLL_UNABLE_MS : POLL_MS);
    }
    throw new PlainError(`${url} did not answer 200 within ${timeout_ms / 1000} s (last: ${last.said}).`);
  };
  try {
    await Promise.race([poll(), gone]);
  } finally {
    over = true;
  }
}

/** What a server says: a status or the name of an error, and the reason why it cannot serve if it gives one. */
async function ask(url) {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(ASK_TIMEOUT_MS) });
    const text = await response.text();
    return { said: response.status, detail: response.status === 503 ? detailIn(text) : undefined };
  } catch (error) {
    return { said: error.cause?.code ?? error.name };
  }
}

function detailIn(text) {
  try {
    const { detail } = JSON.parse(text);
    return typeof detail === 'string' && detail ? detail : undefined;
  } catch {
    return undefined; // a 503 of somebody in between
  }
}
