// One measurement: a fresh server, a first request, a warm-up, the load, and what the server left on disk.

import { mkdtempSync, writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { background, output } from '../../scripts/lib/children.mjs';
import { PlainError } from '../../scripts/lib/report.mjs';
import { NEW_OBJECTS, modelOf, warmUp } from './cells.mjs';
import { KEY, TARGETS } from './targets.mjs';

const STORED_ROWS = fileURLToPath(new URL('./stored-rows.py', import.meta.url));
/** Far beyond any cell on a busy machine. */
const LOAD_TIMEOUT_S = 120;

/** Runs the load client against a server; `load` as in cells.mjs. Returns its report. */
async function runLoad(context, target, server, load) {
  const expected = await expectedFile(context, target, load);
  const options = {
    address: `127.0.0.1:${server.port}`,
    key: KEY,
    model: modelOf(load),
    expected,
    streams: load.streams,
    rounds: load.rounds ?? 1,
    'ramp-ms': load.ramp_ms ?? 0,
    'include-usage': load.include_usage,
    'timeout-s': LOAD_TIMEOUT_S,
    ...(server.pid ? { pid: server.pid } : {}),
  };
  const args = Object.entries(options).flatMap(([name, value]) => [`--${name}`, `${value}`]);
  const child = background(context.client, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const [stdout, stderr, end] = await Promise.all([text(child.stdout), text(child.stderr), child.exited]);
  if (end.code !== 0) throw new PlainError(`${TARGETS[target].title}: the load failed.`, stderr);
  return JSON.parse(stdout);
}

async function text(stream) {
  let all = '';
  for await (const piece of stream.setEncoding('utf8')) all += piece;
  return all;
}

/** The body that a client of the target must get, in a file. */
async function expectedFile({ simulator, folder }, target, load) {
  const strips = Boolean(TARGETS[target].strips_usage) && !load.include_usage;
  const query = new URLSearchParams({ model: modelOf(load), include_usage: strips || load.include_usage });
  const response = await fetch(`${simulator}/__expected?${query}`);
  const body = await response.text();
  if (response.status !== 200) throw new PlainError(`The simulator does not know ${modelOf(load)}.`, body);
  const path = join(folder, `expected-${target}.txt`);
  writeFileSync(path, strips ? withoutUsageEvent(body) : body);
  return path;
}

function withoutUsageEvent(body) {
  const events = body.split(/(?<=\n\n)/);
  const kept = events.filter((event) => !event.includes('"choices":[],"usage":{'));
  if (kept.length !== events.length - 1) throw new Error('there is not one usage event in the expected body');
  return kept.join('');
}

/** What the cell's generations left in the storage; `null` without storage or Python. */
async function storedRows({ python }, storage, logLength) {
  if (!storage || !python) return null;
  const found = await output(python, [STORED_ROWS, storage, `${logLength}`]);
  if (found === null) throw new PlainError('Counting the stored rows failed.');
  return JSON.parse(found);
}

/** Starts a fresh server of the target, hands it to `work`, and ends it; then `after` may read its storage. */
async function withServer(context, target, work, after = async () => null) {
  // Never a folder that was used before, and none is deleted before the end: a file system is slow at making files
  // where many have just been deleted (ext4 without a journal by milliseconds each).
  const folder = mkdtempSync(join(context.folder, `${target}-`));
  const server = await TARGETS[target].start({ ...context, folder });
  let result;
  try {
    result = await Promise.race([work(server), ...(server.gone ? [server.gone] : [])]);
  } finally {
    await server.end();
  }
  return { ...result, stored: await after(server, result) };
}

/** Measures a cell on a fresh server of the target. */
export function measureCell(context, target, cell) {
  const load_before = loadavg()[0];
  return withServer(
    context,
    target,
    async (server) => {
      await runLoad(context, target, server, { ...warmUp(context.quick), include_usage: cell.include_usage });
      return { load_before, ...(await runLoad(context, target, server, cell)) };
    },
    (server, { bytes, generations }) => storedRows(context, server.storage, bytes / generations),
  );
}

/**
 * Measures what a generation costs apart from its tokens, on a fresh server: `first`, the first request that the
 * process gets; `serial`, new generations one at a time; `burst`, many at the same moment.
 */
export function measureNewObjects(context, target) {
  const size = context.quick ? 'quick' : 'long';
  const asking = { include_usage: true };
  return withServer(context, target, async (server) => {
    const run = (load) => runLoad(context, target, server, { ...load, ...asking });
    const first = await run({ streams: 1, tokens: 1 });
    await run(warmUp(context.quick));
    const serial = await run(NEW_OBJECTS.serial[size]);
    return { first, serial, burst: await run(NEW_OBJECTS.burst[size]) };
  });
}
