// The servers that are compared. Each is started afresh for a cell, on empty storage, and ended after it.

import { mkdirSync, writeFileSync } from 'node:fs';
import { createConnection } from 'node:net';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

import { background, stop, untilGone } from '../../scripts/lib/children.mjs';
import { freePort, untilHealthy } from '../../scripts/lib/http.mjs';
import { workerdBinary } from '../../scripts/lib/paths.mjs';
import { PlainError } from '../../scripts/lib/report.mjs';
import { wranglerSettings } from '../../scripts/lib/settings.mjs';
import { createTenant } from '../../scripts/lib/tenants.mjs';
import { demoKey, keyDigest, localVars } from '../../scripts/local-vars.mjs';
import { writeConfig } from '../../scripts/workerd-config.mjs';

const PEPPER = 'pepper-of-the-benchmark-only';
const BARE_WORKER = fileURLToPath(new URL('./bare-worker.mjs', import.meta.url));
const READY_WITHIN_MS = 30_000;
const RETRY_MS = 10;

/** The targets by name. `strips_usage`: the usage event does not reach a client that did not ask for it. */
export const TARGETS = {
  direct: { title: 'direct', start: startDirect },
  bare: { title: 'bare Worker', start: startBare },
  object: { title: 'Holdfast', strips_usage: true, start: (context) => startHoldfast(context, { owner: 'object' }) },
  edge: {
    title: 'Holdfast, edge',
    strips_usage: true,
    start: (context) => startHoldfast(context, { owner: 'edge', total_ms: 25_000 }),
  },
};

/** No process of its own: the simulator, which runs anyway. */
async function startDirect({ simulator }) {
  return { port: Number(new URL(simulator).port), pid: null, storage: null, end: async () => {} };
}

async function startBare({ simulator, folder }) {
  const port = await freePort();
  const config = join(folder, 'config.capnp');
  const { compatibilityDate } = await wranglerSettings();
  mkdirSync(folder, { recursive: true });
  writeFileSync(config, bareConfig({ port, folder, simulator, compatibilityDate }));
  return { port, storage: null, ...(await startWorkerd(config, () => untilOpen(port))) };
}

// The embedded path must be relative: capnp reads an absolute one as one of its import path.
const bareConfig = ({ port, folder, simulator, compatibilityDate }) => `using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "bare", worker = .bare),
    (name = "egress", network = (allow = ["public", "private", "local"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "bare")],
);

const bare :Workerd.Worker = (
  modules = [(name = "bare-worker.mjs", esModule = embed "${relative(folder, BARE_WORKER)}")],
  compatibilityDate = "${compatibilityDate}",
  globalOutbound = "egress",
  bindings = [(name = "ORIGIN", text = "${simulator}")],
);
`;

async function startHoldfast({ simulator, folder, build }, terms) {
  const port = await freePort();
  const storage = join(folder, 'objects');
  const vars = localVars({ simulatorOrigin: simulator, pepper: PEPPER });
  const config = await writeConfig({ out: join(folder, 'config.capnp'), port, storage, build, vars });
  const healthy = (gone) => untilHealthy(`http://127.0.0.1:${port}/healthz`, { gone, timeout_ms: READY_WITHIN_MS });
  const target = { port, storage, ...(await startWorkerd(config, healthy)) };
  await createTenant(`http://127.0.0.1:${port}`, vars.OPERATOR_KEY, benchTenant(terms));
  return target;
}

/** One tenant whose limits no cell reaches, with one route. */
const benchTenant = (terms) => ({
  id: 'demo',
  keys: [{ digest: keyDigest(PEPPER, KEY), label: 'bench' }],
  grant_micros: 1_000_000_000_000,
  config: {
    budget: { limit_micros: 1_000_000_000_000, period: 'month' },
    concurrency: 1000,
    routes: [{ name: 'bench', provider: 'simulator', on_disconnect: 'detach', ...terms }],
  },
});

/** The client's key for every target; only Holdfast reads it. */
export const KEY = demoKey();

async function startWorkerd(config, ready) {
  const child = background(workerdBinary(), ['serve', config], { stdio: ['ignore', 'ignore', 'pipe'] });
  let log = '';
  child.stderr.setEncoding('utf8').on('data', (text) => (log = (log + text).slice(-20_000)));
  const ending = { wanted: false };
  const gone = untilGone(child, 'workerd').catch((error) => {
    if (!ending.wanted) throw new PlainError(error.message, log);
  });
  gone.catch(() => {});
  await ready(gone);
  const end = async () => {
    ending.wanted = true;
    await stop(child);
    return log;
  };
  return { pid: child.pid, gone, end };
}

/** Waits until somebody accepts connections on the port. The bare Worker has no health of its own to ask for. */
async function untilOpen(port) {
  const deadline = Date.now() + READY_WITHIN_MS;
  while (!(await accepts(port))) {
    if (Date.now() > deadline) throw new PlainError(`Nobody listens on port ${port} after ${READY_WITHIN_MS / 1000} s.`);
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

const accepts = (port) =>
  new Promise((resolve) => {
    const socket = createConnection({ port, host: '127.0.0.1' }, () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
