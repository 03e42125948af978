// A fingerprint of everything that goes into the Wasm, so that a build can be skipped when nothing changed.

import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';

import { output } from './children.mjs';
import { ROOT, inModules, inRoot } from './paths.mjs';
import { PlainError } from './report.mjs';
import { CARGO_TOOLS } from './tools.mjs';

/** Files at the root that change what is built; the root package's code is in `src`. */
const ROOT_INPUTS = ['Cargo.toml', 'Cargo.lock', 'build.rs', 'src', '.cargo'];

/** Folders of the workspace's packages that the Worker is made of, found as cargo finds them. */
async function packageFolders() {
  const text = await output('cargo', ['metadata', '--no-deps', '--format-version', '1']);
  if (text === null) throw new PlainError("'cargo metadata' failed.", 'Run it by hand to see why.');
  const byFolder = new Map(JSON.parse(text).packages.map((found) => [dirname(found.manifest_path), found]));
  const reached = new Set();
  const visit = (folder) => {
    if (reached.has(folder)) return;
    reached.add(folder);
    byFolder.get(folder)?.dependencies.filter(({ path, kind }) => path && kind !== 'dev').forEach(({ path }) => visit(path));
  };
  visit(ROOT);
  reached.delete(ROOT);
  return [...reached].sort();
}

function* filesUnder(path) {
  if (!existsSync(path)) return;
  let entries;
  try {
    entries = readdirSync(path, { withFileTypes: true });
  } catch (error) {
    if (error.code !== 'ENOTDIR') throw error;
    yield path;
    return;
  }
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    if (entry.name === 'target') continue;
    const child = join(path, entry.name);
    if (entry.isDirectory()) yield* filesUnder(child);
    else yield child;
  }
}

async function toolVersions() {
  const modules = ['binaryen', 'esbuild'].map((name) => JSON.parse(readFileSync(inModules(name, 'package.json'), 'utf8')).version);
  const rustc = await output('rustup', ['run', 'nightly', 'rustc', '--version']);
  return [rustc, process.env.RUSTFLAGS ?? '', ...CARGO_TOOLS.map(({ version }) => version), ...modules].join(' ');
}

/** SHA-256 over the sources, the tools' versions and `options`. */
export async function fingerprint(options) {
  const [folders, versions] = await Promise.all([packageFolders(), toolVersions()]);
  const hash = createHash('sha256').update(JSON.stringify([options, versions]));
  for (const path of [...ROOT_INPUTS.map((name) => inRoot(name)), ...folders].flatMap((start) => [...filesUnder(start)])) {
    hash.update(`\0${path.slice(ROOT.length)}\0`).update(readFileSync(path));
  }
  return hash.digest('hex');
}

/** SHA-256 of files, to see whether an output is still the one that was built; `null` if one is missing. */
export function digestOf(paths) {
  if (!paths.every(existsSync)) return null;
  const hash = createHash('sha256');
  for (const path of paths) hash.update(readFileSync(path));
  return hash.digest('hex');
}
