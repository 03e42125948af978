// One at a time between processes: a lock file whose holder keeps touching it.

import { mkdirSync, readFileSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

import { warn } from './report.mjs';

const TOUCH_MS = 1_000;
const STALE_MS = 10_000;
const POLL_MS = 250;

function tryTake(path, mark) {
  try {
    writeFileSync(path, mark, { flag: 'wx' });
    return true;
  } catch (error) {
    if (error.code === 'EEXIST') return false;
    throw error;
  }
}

/** Removes a lock that nobody has touched for a while: its holder died. */
function removeStale(path) {
  try {
    if (Date.now() - statSync(path).mtimeMs < STALE_MS) return;
    const aside = `${path}.${process.pid}.stale`;
    renameSync(path, aside); // atomic: of several waiters one succeeds
    rmSync(aside, { force: true });
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
  }
}

/** Runs `work` while holding the lock file at `path`; `what` names the work to whoever has to wait. */
export async function withLock(path, what, work) {
  mkdirSync(dirname(path), { recursive: true });
  const mark = `${process.pid} ${Date.now()} ${Math.random()}`;
  for (let told = false; !tryTake(path, mark); told = true) {
    if (!told) warn(`waiting for another ${what} to end (${path})`);
    removeStale(path);
    await delay(POLL_MS);
  }
  const touch = setInterval(() => {
    const now = new Date();
    try {
      utimesSync(path, now, now);
    } catch {
      // The lock was taken from us while this machine slept; the work is still correct, only not alone.
    }
  }, TOUCH_MS);
  const release = () => {
    try {
      if (readFileSync(path, 'utf8') === mark) rmSync(path);
    } catch (error) {
      if (error.code !== 'ENOENT') throw error;
    }
  };
  process.once('exit', release);
  try {
    return await work();
  } finally {
    clearInterval(touch);
    process.off('exit', release);
    release();
  }
}
