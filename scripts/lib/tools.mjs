// The pinned tools and where they are found. Raise a version here, run `npm run setup`, and commit.

import { join } from 'node:path';

import { cacheRoot, inModules } from './paths.mjs';

export const NODE_MIN = [20, 3];
export const RUST_MIN = [1, 91];
export const WASM_TARGET = 'wasm32-unknown-unknown';

/** Rust programs installed once per version into the cache. wasm-bindgen must match the library in Cargo.toml. */
export const CARGO_TOOLS = [
  { crate: 'worker-build', version: '0.8.7', program: 'worker-build' },
  { crate: 'wasm-bindgen-cli', version: '0.2.129', program: 'wasm-bindgen' },
];

/** The Python SDK that the tests drive. */
export const PYTHON_OPENAI_VERSION = '3.57.0';

/** Folder of one version of a Rust program, as `cargo install --root` lays it out. */
export const toolFolder = ({ program, version }) => join(cacheRoot(), `${program}-${version}`);

/** The executable of a pinned Rust program. */
export function toolPath(program) {
  const tool = CARGO_TOOLS.find((candidate) => candidate.program === program);
  return join(toolFolder(tool), 'bin', program);
}

/** Python environment with the SDK in it. */
export const pythonFolder = () => join(cacheRoot(), `python-openai-${PYTHON_OPENAI_VERSION}`);
export const pythonPath = () => join(pythonFolder(), 'bin', 'python');

/** Points worker-build at local tools, so that it downloads nothing. */
export const buildEnvironment = () => ({
  WASM_BINDGEN_BIN: toolPath('wasm-bindgen'),
  WASM_OPT_BIN: inModules('binaryen', 'bin', 'wasm-opt'),
  ESBUILD_BIN: inModules('esbuild', 'bin', 'esbuild'),
});

/** With these, wrangler asks no questions and calls no other host. */
export const wranglerEnvironment = {
  CI: '1',
  CLOUDFLARE_CF_FETCH_ENABLED: 'false',
  WRANGLER_HIDE_BANNER: 'true',
  WRANGLER_SEND_ERROR_REPORTS: 'false',
  WRANGLER_SEND_METRICS: 'false',
};

/** Whether a version such as `1.95.0` is at least `[1, 91]`. */
export function atLeast(version, minimum) {
  const parts = version.split('.').map(Number);
  const [major, minor] = [parts[0] ?? 0, parts[1] ?? 0];
  return major > minimum[0] || (major === minimum[0] && minor >= minimum[1]);
}
