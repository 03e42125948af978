import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';

import { inRoot } from '../lib/paths.mjs';

for (const [option, said] of [
  ['--prot', "Unknown option '--prot'"],
  ['--port', "Option '--port <value>' argument missing"],
]) {
  test(`a script that is given ${option} says what is wrong, in plain words`, () => {
    const { status, stderr } = spawnSync(process.execPath, [inRoot('scripts', 'start.mjs'), option], { encoding: 'utf8' });
    assert.equal(status, 1);
    assert.equal(stderr.trim(), `failed: ${said}\nWhat it takes stands at the top of scripts/start.mjs.`);
  });
}
