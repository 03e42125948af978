import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';

import { withLock } from '../lib/lock.mjs';

async function inFolder(work) {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-lock-'));
  try {
    await work(join(folder, 'deep', 'lock'));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test('one holder at a time, and nothing is left behind', () =>
  inFolder(async (path) => {
    let inside = 0;
    let most = 0;
    const work = async () => {
      most = Math.max(most, ++inside);
      for (let i = 0; i < 10; i++) await turn();
      inside--;
    };
    await Promise.all([withLock(path, 'work', work), withLock(path, 'work', work), withLock(path, 'work', work)]);
    assert.equal(most, 1);
    assert.equal(existsSync(path), false);
  }));

test('a failing holder lets go', () =>
  inFolder(async (path) => {
    await assert.rejects(withLock(path, 'work', () => Promise.reject(new Error('no'))), /no/);
    assert.equal(await withLock(path, 'work', () => 7), 7);
  }));

test('the lock of a holder that died is taken over', () =>
  inFolder(async (path) => {
    await withLock(path, 'work', () => {});
    writeFileSync(path, 'the dead');
    const longAgo = new Date(Date.now() - 60_000);
    utimesSync(path, longAgo, longAgo);
    assert.equal(await withLock(path, 'work', () => 7), 7);
  }));
