// Checks that the core is pure: it pulls in nothing of a runtime, and compiles to Wasm without one import.
//
//   node scripts/check-core.mjs

import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { output, run, runQuietly } from './lib/children.mjs';
import { main } from './lib/main.mjs';
import { inRoot } from './lib/paths.mjs';
import { PlainError, ok } from './lib/report.mjs';
import { WASM_TARGET } from './lib/tools.mjs';

/** Crates that bring a clock, randomness, I/O, async tasks or JavaScript. */
const FORBIDDEN = ['chrono', 'getrandom', 'js-sys', 'tokio', 'wasm-bindgen', 'web-sys', 'worker'];

async function checkTree() {
  const args = ['tree', '-p', 'holdfast-core', '--target', WASM_TARGET, '-e', 'normal', '--prefix', 'none', '--format', '{p}'];
  const tree = await output('cargo', args);
  if (tree === null) throw new PlainError("'cargo tree' failed for holdfast-core.", `Run it by hand: cargo ${args.join(' ')}`);
  const crates = new Set(tree.split('\n').map((line) => line.split(' ')[0]));
  if (!crates.has('holdfast-core')) throw new PlainError("'cargo tree' does not list holdfast-core.");
  const found = FORBIDDEN.filter((name) => crates.has(name));
  if (found.length) {
    throw new PlainError(`holdfast-core depends on ${found.join(', ')}.`, 'Find by whom: cargo tree -p holdfast-core -i CRATE');
  }
  ok('core depends on', [...crates].filter((name) => name && name !== 'holdfast-core').sort().join(', '));
}

/** An empty library that depends on the core: what it links to beyond that is told to the linker. */
function writeProbe(folder) {
  mkdirSync(join(folder, 'src'), { recursive: true });
  copyFileSync(inRoot('Cargo.lock'), join(folder, 'Cargo.lock'));
  writeFileSync(join(folder, 'src', 'lib.rs'), 'pub use holdfast_core as core;\n');
  writeFileSync(
    join(folder, 'Cargo.toml'),
    `[package]
name = "core-probe"
version = "0.0.0"
edition = "2024"

[lib]
crate-type = ["cdylib"]

[dependencies]
holdfast-core = { path = ${JSON.stringify(inRoot('core'))} }

[workspace]
`,
  );
}

/** Builds the core for Wasm; returns the path of its archive. */
async function buildCore(cargo, env) {
  const args = ['build', '--quiet', ...cargo, '--message-format', 'json-render-diagnostics'];
  const { stdout } = await runQuietly('core as Wasm', 'cargo', args, { env });
  const artifacts = stdout.split('\n').filter(Boolean).map(JSON.parse);
  const core = artifacts.find(({ reason, target }) => reason === 'compiler-artifact' && target.name === 'holdfast_core');
  return core.filenames.find((name) => name.endsWith('.rlib'));
}

async function checkImports() {
  const folder = inRoot('target', 'core-probe');
  writeProbe(folder);
  const cargo = ['--manifest-path', join(folder, 'Cargo.toml'), '--target', WASM_TARGET];
  const env = { CARGO_TARGET_DIR: folder };
  const archive = await buildCore(cargo, env);
  // All of the core, used or not; of its dependencies what it refers to.
  // The linker finds some of it on its own as well: those symbols come twice, and alike.
  const link = ['--allow-multiple-definition', '--whole-archive', archive, '--no-gc-sections'].map((arg) => `-Clink-arg=${arg}`);
  await run('cargo', ['rustc', '--quiet', ...cargo, '--', ...link], { env });
  const wasm = readFileSync(join(folder, WASM_TARGET, 'debug', 'core_probe.wasm'));
  if (!wasm.includes('holdfast_core')) throw new PlainError('The check is void: the probe does not contain the core.');
  const module = new WebAssembly.Module(wasm);
  const imports = WebAssembly.Module.imports(module).map((found) => `${found.module}.${found.name}`);
  if (imports.length) throw new PlainError(`holdfast-core, as Wasm, imports ${imports.join(', ')}.`);
  ok('core imports nothing', 'as Wasm, with all of its code linked');
}

/** Fails in plain words if the core is not pure. */
export async function checkCore() {
  await checkTree();
  await checkImports();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main(checkCore);
