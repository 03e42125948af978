// Child processes: run one to its end with visible progress, or keep one beside us and end it with us.
//
// Every child leads its own process group, so that one signal reaches its whole tree (wrangler starts
// workerd, cargo starts rustc), and a signal to us is passed on before we go.

import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { createInterface } from 'node:readline';

import { ROOT } from './paths.mjs';
import { PlainError, heard, isHeard, silenceTicker, ticker } from './report.mjs';

const KILL_AFTER_MS = 5_000;
const live = new Set();
let stopping = false;

function start(command, args, { env, cwd = ROOT, stdio }) {
  const child = spawn(command, args, { cwd, stdio, env: { ...process.env, ...env }, detached: true });
  live.add(child);
  child.exited = new Promise((resolve) => {
    child.once('error', (error) => resolve({ code: null, signal: null, error }));
    child.once('close', (code, signal) => resolve({ code, signal, error: null }));
  }).then((end) => {
    live.delete(child);
    return end;
  });
  return child;
}

function signalGroup(child, signal) {
  try {
    if (child.pid) process.kill(-child.pid, signal);
  } catch (error) {
    if (error.code !== 'ESRCH') throw error;
  }
}

/** Ends a child and its whole group: politely first, by force after five seconds. */
export async function stop(child) {
  signalGroup(child, 'SIGTERM');
  const force = setTimeout(() => signalGroup(child, 'SIGKILL'), KILL_AFTER_MS);
  await child.exited;
  clearTimeout(force);
}

/** Ends every child that still runs. */
export const stopAll = () => Promise.all([...live].map(stop));

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.on(signal, async () => {
    if (stopping) return;
    stopping = true;
    await stopAll();
    process.exit(128 + constants.signals[signal]);
  });
}

/** True once a signal has asked us to end: a child's death is then no failure. */
export const isStopping = () => stopping;

const described = (command, args) => [command, ...args].join(' ');

function check(command, args, end, remedy) {
  if (stopping) return new Promise(() => {}); // the signal handler ends the process
  if (end.error?.code === 'ENOENT') throw new PlainError(`'${command}' was not found on this machine.`, remedy);
  if (end.error) throw end.error;
  if (end.code !== 0) {
    throw new PlainError(`'${described(command, args)}' ended with ${end.signal ?? `exit code ${end.code}`}.`, remedy);
  }
  return undefined;
}

/**
 * Runs a command whose own output is the progress. With `silent`, a name for the work, it also says that the work
 * goes on while the command is silent.
 */
export async function run(command, args, { env, cwd, remedy, silent } = {}) {
  const piped = silent !== undefined || isHeard();
  const output = piped ? 'pipe' : 'inherit';
  const child = start(command, args, { env: { ...(piped && colourInPipes()), ...env }, cwd, stdio: ['ignore', output, output] });
  const ticks = silent === undefined ? null : silenceTicker(silent);
  relay(child.stdout, process.stdout, ticks);
  relay(child.stderr, process.stderr, ticks);
  try {
    await check(command, args, await child.exited, remedy);
  } finally {
    ticks?.end();
  }
}

/** Keeps the colours that programs show on a terminal although their output goes through us. */
const colourInPipes = () => (process.stdout.isTTY && !process.env.NO_COLOR ? { CARGO_TERM_COLOR: 'always', FORCE_COLOR: '1' } : {});

/** Shows a child's output as it comes, and passes its lines on to whoever listens. */
function relay(from, to, ticks) {
  from?.on('data', (bytes) => {
    to.write(bytes);
    ticks?.heardNow();
  });
  if (from && isHeard()) createInterface({ input: from }).on('line', heard);
}

/** Runs a command that says little: shows the time it takes, and its output only if it fails. */
export async function runQuietly(name, command, args, { env, cwd, remedy } = {}) {
  const done = ticker(name);
  const { end, stdout, stderr } = await collect(command, args, { env, cwd });
  const elapsed_ms = done();
  if (end.code !== 0 && !stopping) process.stderr.write(`${stdout}${stderr}`);
  await check(command, args, end, remedy);
  return { stdout, elapsed_ms };
}

async function collect(command, args, { env, cwd }) {
  const child = start(command, args, { env, cwd, stdio: ['ignore', 'pipe', 'pipe'] });
  let stdout = '';
  let stderr = '';
  child.stdout?.setEncoding('utf8').on('data', (text) => (stdout += text));
  child.stderr?.setEncoding('utf8').on('data', (text) => (stderr += text));
  const end = await child.exited;
  return { end, stdout, stderr };
}

/** The output of a command, or `null` if it is missing or fails. */
export async function output(command, args, { env, cwd } = {}) {
  const { end, stdout } = await collect(command, args, { env, cwd });
  return end.code === 0 ? stdout.trim() : null;
}

/** Starts a command that runs beside us; ends with us. `stdio` as for `spawn`. */
export function background(command, args, { env, cwd, stdio = ['ignore', 'inherit', 'inherit'] } = {}) {
  return start(command, args, { env, cwd, stdio });
}

/**
 * A promise that rejects, in plain words, when a background child ends by itself. It may be awaited late or
 * never; while we are being stopped it stays pending.
 */
export function untilGone(child, name) {
  const gone = child.exited.then(({ code, signal, error }) => {
    if (stopping) return new Promise(() => {});
    throw new PlainError(`${name} ended by itself (${error?.message ?? signal ?? `exit code ${code}`}).`);
  });
  gone.catch(() => {});
  return gone;
}
