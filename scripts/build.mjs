// Builds the Worker to Wasm, checks what came out, and prints its size and start-up time.
//
//   node scripts/build.mjs [--features test-hooks] [--out-dir build]
//
// Nothing is built when sources, tools and output are those of the last build.

import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';

import { background, run, stop } from './lib/children.mjs';
import { freePort, untilHealthy } from './lib/http.mjs';
import { withLock } from './lib/lock.mjs';
import { main } from './lib/main.mjs';
import { inModules, inRoot, workerdBinary } from './lib/paths.mjs';
import { PlainError, bold, duration, kib, ok, say } from './lib/report.mjs';
import { wranglerSettings } from './lib/settings.mjs';
import { digestOf, fingerprint } from './lib/sources.mjs';
import { buildEnvironment, toolPath } from './lib/tools.mjs';
import { localVars } from './local-vars.mjs';
import { writeConfig } from './workerd-config.mjs';

const GZIP_MAX_BYTES = 1536 * 1024;
const START_TIMEOUT_MS = 30_000;

const outputs = (folder) => ['index.js', 'index_bg.wasm'].map((name) => join(folder, name));

function requireTools() {
  const missing = [toolPath('worker-build'), toolPath('wasm-bindgen'), inModules('wrangler')].filter((path) => !existsSync(path));
  if (missing.length) throw new PlainError(`${missing[0]} is missing.`, 'Run: npm run setup');
}

/** The objects of a crate that the root crate does not name vanish from the Wasm without a word. */
async function checkClasses(folder) {
  const code = readFileSync(join(folder, 'index.js'), 'utf8');
  const exported = [...code.matchAll(/export\s*\{([^}]*)\}/g)].flatMap(([, names]) =>
    names.split(',').map((name) => name.trim().split(/\s+as\s+/).at(-1)),
  );
  const { objects } = await wranglerSettings();
  const missing = objects.map(({ className }) => className).filter((name) => !exported.includes(name));
  if (missing.length) {
    throw new PlainError(
      `${missing.join(', ')} of wrangler.toml is not exported by ${join(folder, 'index.js')}.`,
      'src/lib.rs must name the objects: pub use holdfast_objects::{…}.',
    );
  }
}

function measureSize(folder) {
  const wasm = readFileSync(join(folder, 'index_bg.wasm'));
  const gzip_bytes = gzipSync(wasm, { level: 9 }).length;
  if (gzip_bytes > GZIP_MAX_BYTES) {
    throw new PlainError(`The Wasm is ${kib(gzip_bytes)} gzipped; the limit is ${kib(GZIP_MAX_BYTES)}.`);
  }
  return { raw_bytes: wasm.length, gzip_bytes };
}

/** Time from starting workerd on an empty folder to its first good answer to /healthz, in ms. */
async function measureStart(build) {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-start-'));
  const port = await freePort();
  const vars = localVars({ simulatorOrigin: 'http://127.0.0.1:9' });
  const config = await writeConfig({ out: join(folder, 'config.capnp'), port, storage: join(folder, 'storage'), build, vars });
  const started = performance.now();
  const child = background(workerdBinary(), ['serve', config], { stdio: ['ignore', 'ignore', 'pipe'] });
  let log = '';
  child.stderr?.setEncoding('utf8').on('data', (text) => (log += text));
  const gone = child.exited.then(() => {
    throw new PlainError('workerd could not start the Worker.', log);
  });
  try {
    await untilHealthy(`http://127.0.0.1:${port}/healthz`, { gone, timeout_ms: START_TIMEOUT_MS });
    return performance.now() - started;
  } catch (error) {
    if (error instanceof PlainError) error.remedy ||= log;
    throw error;
  } finally {
    gone.catch(() => {});
    await stop(child);
    rmSync(folder, { recursive: true, force: true });
  }
}

async function compile(features, outDir) {
  // worker-build takes what follows the crate's path as cargo's options; without a package, cargo would build all.
  const cargo = ['-p', 'holdfast', ...(features.length ? ['--features', features.join(',')] : [])];
  await run(toolPath('worker-build'), ['--release', '--panic-unwind', '--out-dir', outDir, '.', ...cargo], {
    // SIMD makes the event scanner several times faster; every runtime that takes this Wasm has it.
    // A compiler error needs no stack of worker-build's.
    env: { ...buildEnvironment(), RUSTFLAGS: '-Ctarget-feature=+simd128', RUST_BACKTRACE: '0' },
    remedy: 'The compiler says why above.',
    silent: 'the build', // wasm-opt says nothing for most of a minute
  });
}

function report({ raw_bytes, gzip_bytes, start_ms }) {
  ok('size', `${kib(raw_bytes)}, ${kib(gzip_bytes)} gzipped (limit ${kib(GZIP_MAX_BYTES)})`);
  ok('start-up', `${start_ms.toFixed(0)} ms from starting workerd to the first answer of /healthz`);
}

async function buildLocked({ features, outDir }) {
  const folder = inRoot(outDir);
  const stampPath = join(folder, 'build-stamp.json');
  const inputs = await fingerprint({ features });
  const stamp = existsSync(stampPath) ? JSON.parse(readFileSync(stampPath, 'utf8')) : {};
  if (stamp.inputs === inputs && stamp.digest === digestOf(outputs(folder))) {
    await checkClasses(folder); // wrangler.toml may have changed
    ok('Wasm', `${outDir} is up to date`);
    report(stamp);
    return;
  }
  rmSync(stampPath, { force: true });
  const started = Date.now();
  await compile(features, outDir);
  await checkClasses(folder);
  const measured = { ...measureSize(folder), start_ms: await measureStart(folder) };
  writeFileSync(stampPath, JSON.stringify({ inputs, digest: digestOf(outputs(folder)), ...measured }, null, 2));
  ok('Wasm', `${outDir} built in ${duration(Date.now() - started)}`);
  report(measured);
}

/** Builds into `outDir` (relative to the checkout) with the given cargo features. Returns the absolute folder. */
export async function build({ features = [], outDir = 'build' } = {}) {
  say(bold(`Build${features.length ? ` with ${features.join(', ')}` : ''}`));
  requireTools();
  mkdirSync(inRoot('target'), { recursive: true });
  // All variants share one cargo target folder, in which each writes the same holdfast.wasm.
  await withLock(inRoot('target', 'holdfast-build.lock'), 'build', () => buildLocked({ features, outDir }));
  return inRoot(outDir);
}

async function cli() {
  const { values } = parseArgs({ options: { features: { type: 'string', default: '' }, 'out-dir': { type: 'string', default: 'build' } } });
  await build({ features: values.features.split(',').filter(Boolean), outDir: values['out-dir'] });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main(cli);
