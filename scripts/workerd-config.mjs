// Writes the configuration that serves the built Worker on standalone workerd, from wrangler.toml.
//
//   node scripts/workerd-config.mjs --out FILE.capnp --port PORT --storage DIR
//        [--build DIR] [--var NAME=VALUE]... [--vars-file FILE.json] [--cron-port PORT]
//   node scripts/workerd-config.mjs --print-workerd
//
// Then: WORKERD serve FILE.capnp. With --cron-port, any request to that port rings the cron; this needs
// WORKERD serve --experimental. Values of --var win over --vars-file, which wins over wrangler.toml.

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, isAbsolute, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { allowedNetworks } from './lib/egress.mjs';
import { main } from './lib/main.mjs';
import { inRoot, workerdBinary } from './lib/paths.mjs';
import { PlainError, say } from './lib/report.mjs';
import { wranglerSettings } from './lib/settings.mjs';

const ASSETS_WORKER = fileURLToPath(new URL('./lib/assets-worker.mjs', import.meta.url));
const CRON_WORKER = fileURLToPath(new URL('./lib/cron-worker.mjs', import.meta.url));

/** A capnp text literal: any characters, control characters escaped. */
function text(value) {
  const escaped = value.replace(/[\\"]/g, '\\$&').replace(
    /[\u0000-\u001f\u007f]/g,
    (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`,
  );
  return `"${escaped}"`;
}

const list = (items) => items.map((item) => `\n    ${item},`).join('');

function durableObjectNamespace({ className }, { sqliteClasses }) {
  // The unique key names the storage folder: it must never change for a class that has data.
  const sql = sqliteClasses.includes(className) ? ', enableSql = true' : '';
  return `(className = ${text(className)}, uniqueKey = ${text(`holdfast-${className}`)}${sql})`;
}

function bindings({ objects, assets }, vars) {
  return [
    ...objects.map(({ name, className }) => `(name = ${text(name)}, durableObjectNamespace = ${text(className)})`),
    ...(assets?.binding ? [`(name = ${text(assets.binding)}, service = "assets")`] : []),
    ...Object.entries(vars).map(([name, value]) => `(name = ${text(name)}, text = ${text(value)})`),
  ];
}

function cron({ settings, host, cronPort, embed }) {
  if (!cronPort) return { services: '', sockets: '', worker: '' };
  return {
    services: '\n    (name = "cron", worker = .cron),',
    sockets: `\n    (name = "cron", address = ${text(`${host}:${cronPort}`)}, http = (), service = "cron"),`,
    worker: `
const cron :Workerd.Worker = (
  modules = [(name = "cron.mjs", esModule = embed ${text(embed(CRON_WORKER))})],
  compatibilityDate = ${text(settings.compatibilityDate)},
  compatibilityFlags = ["service_binding_extra_handlers"],
  bindings = [(name = "HOLDFAST", service = "holdfast")],
);
`,
  };
}

function document({ settings, vars, host, port, cronPort, storage, embed, build }) {
  const date = text(settings.compatibilityDate);
  const rung = cron({ settings, host, cronPort, embed });
  return `# Made by scripts/workerd-config.mjs. It may hold secrets.
using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "holdfast", worker = .holdfast),
    (name = "assets", worker = .assets),
    (name = "files", disk = (path = ${text(inRoot(settings.assets?.directory ?? 'public'))})),
    (name = "storage", disk = (path = ${text(storage)}, writable = true)),
    (name = "egress", network = (
      allow = [${allowedNetworks(vars).map(text).join(', ')}],
      tlsOptions = (trustBrowserCas = true),
    )),${rung.services}
  ],
  sockets = [
    (name = "http", address = ${text(`${host}:${port}`)}, http = (), service = "holdfast"),${rung.sockets}
  ],
);

const holdfast :Workerd.Worker = (
  modules = [
    (name = "index.js", esModule = embed ${text(embed(join(build, 'index.js')))}),
    (name = "index_bg.wasm", wasm = embed ${text(embed(join(build, 'index_bg.wasm')))}),
  ],
  compatibilityDate = ${date},
  compatibilityFlags = [${settings.compatibilityFlags.map(text).join(', ')}],
  globalOutbound = "egress",
  bindings = [${list(bindings(settings, vars))}
  ],
  durableObjectNamespaces = [${list(settings.objects.map((object) => durableObjectNamespace(object, settings)))}
  ],
  durableObjectStorage = (localDisk = "storage"),
);

const assets :Workerd.Worker = (
  modules = [(name = "assets.mjs", esModule = embed ${text(embed(ASSETS_WORKER))})],
  compatibilityDate = ${date},
  bindings = [(name = "FILES", service = "files")],
);
${rung.worker}`;
}

/**
 * Writes a workerd configuration to the file `out` and makes the folder `storage`.
 * `vars` (name to text) are laid over the [vars] of wrangler.toml. Returns the absolute path of `out`.
 */
export async function writeConfig({ out, port, storage, build = 'build', vars = {}, host = '127.0.0.1', cronPort }) {
  const settings = await wranglerSettings();
  const path = resolve(out);
  const folder = dirname(path);
  mkdirSync(folder, { recursive: true });
  mkdirSync(storage, { recursive: true });
  const config = document({
    settings,
    host,
    port,
    cronPort,
    build: isAbsolute(build) ? build : inRoot(build),
    vars: { ...settings.vars, ...vars },
    storage: resolve(storage),
    embed: (file) => relative(folder, file), // capnp reads an absolute path as one of its import path
  });
  writeFileSync(path, config, { mode: 0o600 });
  return path;
}

function parseVars(assignments, file) {
  const fromFile = file ? JSON.parse(readFileSync(file, 'utf8')) : {};
  const fromArgs = assignments.map((assignment) => {
    const at = assignment.indexOf('=');
    if (at < 1) throw new PlainError(`--var needs NAME=VALUE, not '${assignment}'.`);
    return [assignment.slice(0, at), assignment.slice(at + 1)];
  });
  return { ...fromFile, ...Object.fromEntries(fromArgs) };
}

async function cli() {
  const { values } = parseArgs({
    options: {
      out: { type: 'string' },
      port: { type: 'string' },
      storage: { type: 'string' },
      build: { type: 'string' },
      var: { type: 'string', multiple: true, default: [] },
      'vars-file': { type: 'string' },
      'cron-port': { type: 'string' },
      'print-workerd': { type: 'boolean' },
    },
  });
  if (values['print-workerd']) say(workerdBinary());
  if (!values.out) {
    if (values['print-workerd']) return;
    throw new PlainError('--out, --port and --storage are needed.');
  }
  const port = Number(values.port);
  if (!Number.isInteger(port) || port < 1 || port > 65535) throw new PlainError('--port must be a number from 1 to 65535.');
  if (!values.storage) throw new PlainError('--storage DIR is needed.');
  const build = values.build ? resolve(values.build) : undefined;
  const vars = parseVars(values.var, values['vars-file']);
  const cronPort = values['cron-port'] && Number(values['cron-port']);
  await writeConfig({ out: values.out, port, storage: values.storage, build, vars, cronPort });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main(cli);
