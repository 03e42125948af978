// Everything that must hold, in the order in which a failure is cheapest to see.
//
//   npm test [-- --only STEP[,STEP]] [-- --only tests -- ARGUMENTS OF CARGO TEST]
//
// Ends at the first failing step, with a table of what ran, what did not, and all that said it was SKIPPED.

import { readdirSync } from 'node:fs';
import { parseArgs, stripVTControlCharacters } from 'node:util';

import { build } from './build.mjs';
import { checkCore } from './check-core.mjs';
import { run, runQuietly } from './lib/children.mjs';
import { main } from './lib/main.mjs';
import { WRANGLER, inRoot } from './lib/paths.mjs';
import { PlainError, bold, duration, green, listen, ok, red, say, yellow } from './lib/report.mjs';
import { WASM_TARGET, wranglerEnvironment } from './lib/tools.mjs';
import { setup } from './setup.mjs';

const SHIPPED = ['holdfast', 'holdfast-core', 'holdfast-objects'].flatMap((name) => ['-p', name]);
const BUILD = 'build';
const TEST_BUILD = 'build-test';
const DENY_WARNINGS = ['--', '-D', 'warnings'];

async function clippy() {
  const wasm = ['clippy', '-p', 'holdfast', '-p', 'holdfast-objects', '--target', WASM_TARGET];
  await run('cargo', ['clippy', '--workspace', '--all-targets', ...DENY_WARNINGS]);
  await run('cargo', [...wasm, ...DENY_WARNINGS]);
  await run('cargo', [...wasm, '--features', 'holdfast/test-hooks', ...DENY_WARNINGS]);
}

async function testScripts() {
  const files = readdirSync(inRoot('scripts', 'tests')).filter((name) => name.endsWith('.test.mjs'));
  if (!files.length) throw new PlainError('scripts/tests holds no test.');
  await run(process.execPath, ['--test', '--test-reporter=spec', ...files.map((name) => inRoot('scripts', 'tests', name))]);
}

/** The demo page and its client module, in a real Chromium where there is one; the tests say so where there is none. */
async function testBrowser(environment) {
  await run('cargo', ['build', '--package', 'holdfast-simulator']);
  const files = readdirSync(inRoot('tests', 'browser')).filter((name) => name.endsWith('.test.mjs'));
  const paths = files.map((name) => inRoot('tests', 'browser', name));
  await run(process.execPath, ['--test', '--test-reporter=spec', ...paths], { env: { ...environment, ...testEnvironment } });
}

async function dryRunDeploy() {
  await runQuietly('wrangler deploy --dry-run', process.execPath, [WRANGLER, 'deploy', '--dry-run'], { env: wranglerEnvironment });
  ok('wrangler deploy --dry-run');
}

/** The end-to-end tests serve these builds, so they are brought up to date first. */
const testEnvironment = { HOLDFAST_BUILD: inRoot(BUILD), HOLDFAST_TEST_BUILD: inRoot(TEST_BUILD) };

const STEPS = {
  format: () => run('cargo', ['fmt', '--all', '--check'], { remedy: 'Run: npm run format' }),
  clippy,
  docs: () => run('cargo', ['doc', '--no-deps', ...SHIPPED], { env: { RUSTDOCFLAGS: '-D warnings' } }),
  core: checkCore,
  build: () => build({ outDir: BUILD }),
  'build-test': () => build({ outDir: TEST_BUILD, features: ['test-hooks'] }),
  scripts: testScripts,
  deploy: dryRunDeploy,
  tests: (environment, args) => run('cargo', ['test', ...(args.length ? args : ['--workspace'])], { env: { ...environment, ...testEnvironment } }),
  browser: testBrowser,
};

/** Steps whose result another step uses. */
const NEEDS = { deploy: ['build'], browser: ['build'], tests: ['build', 'build-test'] };

function chooseSteps(only) {
  const names = Object.keys(STEPS);
  if (!only) return names;
  const wanted = only.split(',');
  const unknown = wanted.find((name) => !names.includes(name));
  if (unknown) throw new PlainError(`There is no step '${unknown}'.`, `Steps: ${names.join(', ')}`);
  const chosen = new Set(wanted.flatMap((name) => [name, ...(NEEDS[name] ?? [])]));
  return names.filter((name) => chosen.has(name));
}

function printTable(steps, results) {
  const notRun = steps.filter((name) => !results.some((result) => result.name === name)).map((name) => ({ name }));
  const rows = [...results, ...notRun];
  const width = Math.max(...rows.map(({ name }) => name.length));
  say(`\n${bold('Summary')}`);
  for (const { name, passed, elapsed_ms } of rows) {
    if (passed === undefined) say(`  not run ${name}`);
    else say(`  ${passed ? green('passed') : red('FAILED')}  ${name.padEnd(width)}  ${duration(elapsed_ms).padStart(12)}`);
  }
}

/** Listens for what says that it was skipped: a skip among thousands of lines is not seen. */
function collectSkips() {
  const skips = new Set();
  listen((line) => {
    const text = stripVTControlCharacters(line).trim();
    if (text.includes('SKIPPED')) skips.add(text);
  });
  return skips;
}

function printSkips(skips) {
  listen(null);
  if (!skips.size) return;
  say(`\n${yellow(bold(`Skipped: ${skips.size}`))}`);
  for (const text of skips) say(`  ${text}`);
}

async function timed(name, results, work) {
  const started = Date.now();
  const result = { name, passed: false };
  results.push(result);
  try {
    const value = await work();
    result.passed = true;
    return value;
  } finally {
    result.elapsed_ms = Date.now() - started;
  }
}

await main(async () => {
  const { values, positionals } = parseArgs({ options: { only: { type: 'string' } }, allowPositionals: true });
  const steps = chooseSteps(values.only);
  const results = [];
  const skips = collectSkips();
  try {
    const environment = await timed('set-up', results, () => setup({ withPython: steps.includes('tests') }));
    for (const name of steps) {
      say(`\n${bold(`Step ${name}`)}`);
      await timed(name, results, () => STEPS[name](environment, positionals));
    }
  } finally {
    printTable(['set-up', ...steps], results);
    printSkips(skips);
  }
});
