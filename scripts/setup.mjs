// Gets everything that building and testing needs. Each step is skipped when its result is there, so a
// second run takes about a second and needs no network. Uses Node's own modules only: it runs before
// `npm ci` has.
//
//   node scripts/setup.mjs [--with-python]

import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { output, run, runQuietly } from './lib/children.mjs';
import { withLock } from './lib/lock.mjs';
import { main } from './lib/main.mjs';
import { cacheRoot, inModules, inRoot } from './lib/paths.mjs';
import { PlainError, bold, doing, duration, ok, say, warn } from './lib/report.mjs';
import * as tools from './lib/tools.mjs';

const RUSTUP_REMEDY = 'Get rustup from https://rustup.rs, open a new shell, and run this again.';
const NETWORK_REMEDY = 'This step needs the network once. What it fetched is kept for the next time.';

function checkNode() {
  const version = process.versions.node;
  if (!tools.atLeast(version, tools.NODE_MIN)) {
    throw new PlainError(
      `Node ${tools.NODE_MIN.join('.')} or newer is needed; this is ${version}.`,
      'Get it from https://nodejs.org or by your version manager (for example: nvm install 20).',
    );
  }
  ok('Node', version);
}

async function checkLinker() {
  if (process.platform === 'win32' || (await output('cc', ['--version'])) !== null) return;
  throw new PlainError(
    "Rust needs a C linker and found no 'cc'.",
    "On Debian or Ubuntu: apt-get install build-essential. On macOS: xcode-select --install.",
  );
}

async function checkRust() {
  const [rustup, rustc] = await Promise.all([output('rustup', ['--version']), output('rustc', ['--version'])]);
  if (rustup === null) throw new PlainError('rustup was not found.', RUSTUP_REMEDY);
  if (rustc === null) throw new PlainError('rustup has no default toolchain.', 'Run: rustup default stable');
  const version = rustc.split(' ')[1];
  if (!tools.atLeast(version, tools.RUST_MIN)) {
    throw new PlainError(`Rust ${tools.RUST_MIN.join('.')} or newer is needed; this is ${version}.`, 'Run: rustup update stable');
  }
  await checkLinker();
  ok('Rust', version);
}

/** The default toolchain builds natively and lints; it needs the Wasm target, rustfmt and clippy. */
async function addStableParts() {
  const sysroot = await output('rustc', ['--print', 'sysroot']);
  const missing = [
    { path: `lib/rustlib/${tools.WASM_TARGET}/lib`, args: ['target', 'add', tools.WASM_TARGET] },
    { path: 'bin/cargo-fmt', args: ['component', 'add', 'rustfmt'] },
    { path: 'bin/cargo-clippy', args: ['component', 'add', 'clippy'] },
  ].filter(({ path }) => !existsSync(join(sysroot, path)));
  for (const { args } of missing) {
    doing(`rustup ${args.join(' ')}`);
    await run('rustup', args, { remedy: NETWORK_REMEDY });
  }
  ok('Wasm target, rustfmt, clippy');
}

/** worker-build rebuilds the standard library with unwinding panics; only a nightly can. */
async function addNightly() {
  const nightlySysroot = () => output('rustup', ['run', 'nightly', 'rustc', '--print', 'sysroot']);
  const complete = (sysroot) =>
    sysroot !== null &&
    existsSync(join(sysroot, 'lib/rustlib/src/rust/library/std')) &&
    existsSync(join(sysroot, `lib/rustlib/${tools.WASM_TARGET}/lib`));
  if (!complete(await nightlySysroot())) {
    const args = ['toolchain', 'install', 'nightly', '--profile', 'minimal', '-c', 'rust-src', '-t', tools.WASM_TARGET];
    doing('nightly Rust', `rustup ${args.join(' ')}`);
    await run('rustup', args, { remedy: NETWORK_REMEDY });
  }
  ok('nightly Rust with rust-src', 'for catching panics in Wasm');
}

async function installCargoTool(tool) {
  const { crate, version, program } = tool;
  if (!existsSync(tools.toolPath(program))) {
    doing(`${program} ${version}`, 'compiled once per machine, 3 to 6 minutes on 2 cores; a warning of a "yanked" package is harmless');
    await run('cargo', ['install', crate, '--version', version, '--locked', '--root', tools.toolFolder(tool)], {
      cwd: cacheRoot(), // outside the checkout, whose cargo configuration must not matter
      remedy: NETWORK_REMEDY,
    });
  }
  ok(program, version);
}

const readJson = (path) => (existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : null);

/** npm leaves out optional packages of other platforms, and what only those need. */
function mayBeAbsent({ optional, os, cpu, libc }) {
  const meantForHere = os?.includes(process.platform) && cpu?.includes(process.arch) && !libc;
  return Boolean(optional) && !meantForHere;
}

/** Whether `node_modules` holds exactly what the lock file names for this platform. */
function modulesMatchLock() {
  const lock = readJson(inRoot('package-lock.json')).packages;
  const installed = readJson(inModules('.package-lock.json'))?.packages;
  if (!installed) return false;
  return Object.entries(lock).every(([path, wanted]) => {
    if (path === '') return true;
    const found = installed[path];
    if (!found || !existsSync(inRoot(path, 'package.json'))) return mayBeAbsent(wanted);
    return found.version === wanted.version && found.integrity === wanted.integrity;
  });
}

async function installModules() {
  if (!modulesMatchLock()) {
    await runQuietly('npm ci', 'npm', ['ci', '--no-audit', '--no-fund'], { remedy: NETWORK_REMEDY });
    if (!modulesMatchLock()) throw new PlainError('npm ci ended well, but node_modules does not hold what package-lock.json names.');
  }
  ok('npm packages', 'wrangler, workerd, esbuild, wasm-opt');
}

/** Puts the official Python SDK into an environment of its own. Returns its interpreter, or `null` without Python. */
async function installPythonSdk() {
  const python = tools.pythonPath();
  const stamp = join(tools.pythonFolder(), 'complete');
  if (existsSync(stamp) && existsSync(python)) {
    ok('Python SDK', `openai ${tools.PYTHON_OPENAI_VERSION}`);
    return python;
  }
  if ((await output('python3', ['-c', 'import ensurepip, venv'])) === null) {
    warn(bold('the Python SDK checks will be SKIPPED: python3 with venv was not found (Debian: apt-get install python3-venv)'));
    return null;
  }
  rmSync(tools.pythonFolder(), { recursive: true, force: true });
  await runQuietly('Python environment', 'python3', ['-m', 'venv', tools.pythonFolder()]);
  const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', `openai==${tools.PYTHON_OPENAI_VERSION}`];
  await runQuietly('pip install openai', python, pip, { remedy: NETWORK_REMEDY });
  await run(python, ['-c', `import openai, pathlib; pathlib.Path(${JSON.stringify(stamp)}).write_text(openai.__version__)`]);
  ok('Python SDK', `openai ${tools.PYTHON_OPENAI_VERSION}`);
  return python;
}

/**
 * Runs the set-up. With `withPython`, the Python SDK is part of it.
 * Returns the environment variables that later steps need.
 */
export async function setup({ withPython = false } = {}) {
  const started = Date.now();
  say(bold('Set-up'));
  checkNode();
  const environment = await withLock(join(cacheRoot(), 'setup.lock'), 'set-up', async () => {
    await checkRust();
    await addStableParts();
    await addNightly();
    for (const tool of tools.CARGO_TOOLS) await installCargoTool(tool);
    await installModules();
    const python = withPython ? await installPythonSdk() : null;
    return python ? { HOLDFAST_PYTHON: python } : {};
  });
  say(`  done in ${duration(Date.now() - started)}`);
  return environment;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await main(() => setup({ withPython: process.argv.includes('--with-python') }));
}
