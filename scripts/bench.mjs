// Compares the provider directly, a bare pass-through Worker and Holdfast, in one run on this machine.
//
//   npm run bench -- [--quick] [--repeats 3] [--targets direct,bare,object,edge] [--cells full,paced]
//                    [--out FILE.json] [--storage DIR] [--build DIR]
//
// See docs/benchmarks.md for what is measured. --build takes a folder that is built already, as it is.

import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, loadavg, release } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';

import { CELL_NAMES, cells } from '../tests/bench/cells.mjs';
import { measureCell, measureNewObjects } from '../tests/bench/measure.mjs';
import { figures, medians, printCell, printNewObjects } from '../tests/bench/report.mjs';
import { TARGETS } from '../tests/bench/targets.mjs';
import { build } from './build.mjs';
import { background, output, run, stop, untilGone } from './lib/children.mjs';
import { main } from './lib/main.mjs';
import { inRoot, workerdBinary } from './lib/paths.mjs';
import { PlainError, bold, doing, duration, say, warn } from './lib/report.mjs';
import { setup } from './setup.mjs';

/** Above this, somebody else uses the machine. */
const QUIET_LOAD = 0.7;

function list(text, allowed, option) {
  const names = text.split(',').filter(Boolean);
  const unknown = names.find((name) => !allowed.includes(name));
  if (unknown || !names.length) throw new PlainError(`--${option}: '${unknown ?? text}' is none of ${allowed.join(', ')}.`);
  return allowed.filter((name) => names.includes(name));
}

function options() {
  const { values } = parseArgs({
    options: {
      quick: { type: 'boolean', default: false },
      repeats: { type: 'string' },
      targets: { type: 'string', default: 'direct,bare,object,edge' },
      cells: { type: 'string', default: CELL_NAMES.join() },
      out: { type: 'string' },
      storage: { type: 'string', default: inRoot('.holdfast') },
      build: { type: 'string' },
    },
  });
  const repeats = Number(values.repeats ?? (values.quick ? 1 : 3));
  if (!Number.isInteger(repeats) || repeats < 1 || repeats > 100) throw new PlainError('--repeats is a number from 1 to 100.');
  return {
    quick: values.quick,
    repeats,
    targets: list(values.targets, Object.keys(TARGETS), 'targets'),
    cells: cells({ quick: values.quick, only: list(values.cells, CELL_NAMES, 'cells') }),
    out: values.out && resolve(values.out),
    storage: resolve(values.storage),
    build: values.build && resolve(values.build),
  };
}

async function startSimulator() {
  const child = background(inRoot('target', 'release', 'holdfast-simulator'), ['--log-max', '10'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const gone = untilGone(child, 'The provider simulator');
  const [line] = await Promise.race([once(createInterface({ input: child.stdout }), 'line'), gone]);
  return { simulator: /http:\/\/\S+/.exec(line)[0], stopSimulator: () => stop(child) };
}

async function machine(storage) {
  return {
    processor: cpus()[0].model,
    processors: cpus().length,
    kernel: release(),
    node: process.version,
    workerd: await output(workerdBinary(), ['--version']),
    file_system: await output('stat', ['-f', '-c', '%T', storage]),
    commit: await output('git', ['describe', '--always', '--dirty']),
    date: new Date().toISOString(),
    load_at_start: loadavg()[0],
  };
}

function describe(about) {
  say(`  ${about.processors} processors (${about.processor}), ${about.workerd}, storage on ${about.file_system}`);
  say(`  load average ${about.load_at_start.toFixed(2)} at the start`);
  if (about.load_at_start > QUIET_LOAD) {
    warn('the machine is busy with something else: compare ratios of this run only, and repeat it when it is quiet');
  }
}

async function findPython() {
  if ((await output('python3', ['-c', 'import sqlite3'])) !== null) return 'python3';
  warn('python3 with sqlite3 was not found: stored rows are NOT counted');
  return null;
}

/** Each repeat starts with another target, so that drift of the machine hits all alike. */
const rotated = (targets, by) => targets.map((_, index) => targets[(index + by) % targets.length]);

async function measureAll(context, { targets, cells: all, repeats }) {
  const runs = { new_objects: {}, cells: all.map(() => ({})) };
  const keep = (into, target, result) => (into[target] ??= []).push(result);
  for (let repeat = 0; repeat < repeats; repeat += 1) {
    const order = rotated(targets, repeat);
    doing(`repeat ${repeat + 1} of ${repeats}`, `load average ${loadavg()[0].toFixed(2)}`);
    for (const target of order) keep(runs.new_objects, target, await measureNewObjects(context, target));
    for (const [index, cell] of all.entries()) {
      for (const target of order) keep(runs.cells[index], target, await measureCell(context, target, cell));
    }
  }
  return runs;
}

function mapTargets(targets, of) {
  return Object.fromEntries(targets.map((target) => [target, of(target)]));
}

function summarize({ targets, cells: all }, runs) {
  const newObjects = mapTargets(targets, (target) => medians(runs.new_objects[target]));
  const results = all.map((cell, index) => ({
    ...cell,
    targets: mapTargets(targets, (target) => figures(runs.cells[index][target], newObjects[target])),
  }));
  return { new_objects: newObjects, cells: results };
}

await main(async () => {
  const chosen = options();
  await setup();
  const folder = chosen.build ?? (await build());
  say(bold('Load client and simulator'));
  await run('cargo', ['build', '--release', '-p', 'holdfast-bench', '-p', 'holdfast-simulator']);
  mkdirSync(chosen.storage, { recursive: true });
  const work = mkdtempSync(join(chosen.storage, 'bench-'));
  process.once('exit', () => rmSync(work, { recursive: true, force: true })); // also when a signal ends us
  const { simulator, stopSimulator } = await startSimulator();
  try {
    say(bold('Benchmark'));
    const about = await machine(work);
    describe(about);
    const client = inRoot('target', 'release', 'holdfast-bench');
    const python = await findPython();
    const started = Date.now();
    const runs = await measureAll({ simulator, client, python, folder: work, build: folder, quick: chosen.quick }, chosen);
    const summary = summarize(chosen, runs);
    printNewObjects(summary.new_objects);
    for (const { title, targets } of summary.cells) printCell(title, targets);
    say(`\n  medians of ${chosen.repeats}; ${duration(Date.now() - started)}; load average ${loadavg()[0].toFixed(2)} at the end`);
    if (chosen.out) {
      writeFileSync(chosen.out, `${JSON.stringify({ machine: about, repeats: chosen.repeats, ...summary, runs }, null, 2)}\n`);
      say(`  all numbers: ${chosen.out}`);
    }
  } finally {
    await stopSimulator();
  }
});
