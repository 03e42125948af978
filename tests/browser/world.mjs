// What the browser tests run against: the real Wasm on real workerd beside the provider simulator, and a real Chromium.
//
//   HOLDFAST_BUILD       folder of the built Worker (default: build/)
//   HOLDFAST_SIMULATOR   the simulator's program (default: target/debug/holdfast-simulator)
//   HOLDFAST_CHROMIUM    the browser's program (default: the first one that is found)

import { accessSync, constants, mkdtempSync, rmSync } from 'node:fs';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { createInterface } from 'node:readline';

import { background, stop, untilGone } from '../../scripts/lib/children.mjs';
import { freePort, untilHealthy } from '../../scripts/lib/http.mjs';
import { inRoot, workerdBinary } from '../../scripts/lib/paths.mjs';
import { createTenant } from '../../scripts/lib/tenants.mjs';
import { clientKey, demoKey, demoTenant, keyDigest, localVars } from '../../scripts/local-vars.mjs';
import { writeConfig } from '../../scripts/workerd-config.mjs';

const BROWSERS = ['chromium', 'chromium-browser', 'google-chrome-stable', 'google-chrome'];
const MAC_BROWSERS = ['Chromium', 'Google Chrome'].map((name) => `/Applications/${name}.app/Contents/MacOS/${name}`);
const QUIET = [
  '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
];

function isProgram(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** The program of a Chromium on this machine, or `null`. */
export function findChromium() {
  const folders = (process.env.PATH ?? '').split(delimiter).filter(Boolean);
  const inPath = BROWSERS.flatMap((name) => folders.map((folder) => join(folder, name)));
  const asked = process.env.HOLDFAST_CHROMIUM;
  return (asked ? [asked] : [...inPath, ...MAC_BROWSERS]).find(isProgram) ?? null;
}

/** Starts Chromium; the tests bring no other browser and fetch none. */
export async function launch(executablePath) {
  const { chromium } = await import('playwright-core');
  return chromium.launch({ executablePath, args: QUIET });
}

async function startSimulator() {
  const program = process.env.HOLDFAST_SIMULATOR ?? inRoot('target', 'debug', 'holdfast-simulator');
  const child = background(program, ['--port', '0'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = await Promise.race([once(createInterface({ input: child.stdout }), 'line'), untilGone(child, 'The simulator')]);
  return { child, origin: /http:\/\/\S+/.exec(line)[0] };
}

/** A tenant like the demo's, with other settings, and its key. */
function tenantLike(demo, pepper, id, config) {
  const key = clientKey(id, '0123456789abcdef0123456789abcdef');
  const keys = [{ digest: keyDigest(pepper, key), role: 'admin' }];
  return { key, tenant: { ...demo, id, keys, config: { ...demo.config, ...config } } };
}

/**
 * Serves the product; `origin` and `key` for clients, `upstreamCalls(tag)` for what the provider saw, `createTenant(id,
 * config)` for one more tenant, whose key it returns.
 */
export async function startWorld() {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-browser-'));
  const simulator = await startSimulator();
  const port = await freePort();
  const vars = localVars({ simulatorOrigin: simulator.origin });
  const build = process.env.HOLDFAST_BUILD ?? inRoot('build');
  const config = await writeConfig({ out: join(folder, 'config.capnp'), port, storage: join(folder, 'objects'), build, vars });
  const server = background(workerdBinary(), ['serve', config]);
  const origin = `http://127.0.0.1:${port}`;
  await untilHealthy(`${origin}/healthz`, { gone: untilGone(server, 'workerd') });
  const demo = demoTenant(vars.KEY_PEPPER);
  await createTenant(origin, vars.OPERATOR_KEY, demo);
  return {
    async createTenant(id, config) {
      const { key, tenant } = tenantLike(demo, vars.KEY_PEPPER, id, config);
      await createTenant(origin, vars.OPERATOR_KEY, tenant);
      return key;
    },
    origin,
    key: demoKey(),
    upstreamCalls: async () => (await fetch(`${simulator.origin}/__log`)).json(),
    async end() {
      await Promise.all([stop(server), stop(simulator.child)]);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
