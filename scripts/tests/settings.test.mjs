import assert from 'node:assert/strict';
import { test } from 'node:test';

import { parseDotenv, wranglerSettings } from '../lib/settings.mjs';

test('dotenv text: plain, quoted, escaped and multi-line values, comments', () => {
  const text = [
    '# A=no',
    'PLAIN={"a": 1}  # why',
    "LITERAL='{\"x\": \"a # b\"}'",
    'ESCAPED="line\\nnext \\"q\\" \\\\"',
    'export EXPORTED = yes\r',
    "LINES='[",
    "  1]'",
    'EMPTY=',
    'HASH=a#b',
  ].join('\n');
  assert.deepEqual(parseDotenv(text), {
    PLAIN: '{"a": 1}',
    LITERAL: '{"x": "a # b"}',
    ESCAPED: 'line\nnext "q" \\',
    EXPORTED: 'yes',
    LINES: '[\n  1]',
    EMPTY: '',
    HASH: 'a#b',
  });
});

test('wrangler.toml: its tables are JSON, every object has SQL storage, and the platform flags are on', async () => {
  const settings = await wranglerSettings();
  for (const name of ['PROVIDERS', 'LIMITS']) JSON.parse(settings.vars[name]);
  for (const { className } of settings.objects) assert.ok(settings.sqliteClasses.includes(className), className);
  assert.ok(settings.compatibilityFlags.includes('enable_request_signal'));
  // From this date on, an object's own tasks keep it alive.
  const keepsTasks = settings.compatibilityDate >= '2026-10-01';
  assert.ok(keepsTasks || settings.compatibilityFlags.includes('durable_object_io_tasks_prevent_eviction'));
});
