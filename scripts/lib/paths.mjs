// Where things live: the checkout, the cache shared by all checkouts, and the tools in both.

import { createRequire } from 'node:module';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The root of the checkout. */
export const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '../..');

/** Folder of everything that may be shared between checkouts: pinned Rust tools, the Python environment. */
export function cacheRoot() {
  const { HOLDFAST_CACHE, XDG_CACHE_HOME } = process.env;
  if (HOLDFAST_CACHE) return resolve(HOLDFAST_CACHE);
  return join(XDG_CACHE_HOME ? resolve(XDG_CACHE_HOME) : join(homedir(), '.cache'), 'holdfast');
}

/** A path inside the checkout. */
export const inRoot = (...parts) => join(ROOT, ...parts);

/** A path inside `node_modules`. */
export const inModules = (...parts) => inRoot('node_modules', ...parts);

/** The workerd binary that the lock file pins, for this platform. */
export function workerdBinary() {
  return createRequire(import.meta.url)('workerd').default;
}

/** Arguments to Node that run the pinned wrangler without a shell or `npx`. */
export const WRANGLER = inModules('wrangler', 'bin', 'wrangler.js');
