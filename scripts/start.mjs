// The local demo: the Worker under `wrangler dev` with local storage, beside the provider simulator.
// No account, no key, no network.
//
//   npm start -- [--port 8787]

import { mkdirSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';

import { build } from './build.mjs';
import { background, run, untilGone } from './lib/children.mjs';
import { choosePort, freePort, requireFreePort, untilHealthy } from './lib/http.mjs';
import { main } from './lib/main.mjs';
import { WRANGLER, inRoot } from './lib/paths.mjs';
import { PlainError, bold, dim, green, ok, say, warn } from './lib/report.mjs';
import { SETTINGS_REMEDY, devVars } from './lib/settings.mjs';
import { createTenant } from './lib/tenants.mjs';
import { wranglerEnvironment } from './lib/tools.mjs';
import { demoKey, demoTenant, localVars } from './local-vars.mjs';
import { setup } from './setup.mjs';

const SIMULATOR_READY = /listening on (http:\/\/\S+)/;
const HEALTHY_WITHIN_MS = 120_000;

async function startSimulator() {
  say(bold('Provider simulator'));
  await run('cargo', ['build', '--release', '--package', 'holdfast-simulator']);
  const child = background(inRoot('target', 'release', 'holdfast-simulator'), ['--port', '0'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const gone = untilGone(child, 'The provider simulator');
  const lines = createInterface({ input: child.stdout });
  const [first] = await Promise.race([once(lines, 'line'), gone]);
  const origin = SIMULATOR_READY.exec(first)?.[1];
  if (!origin) throw new PlainError(`The provider simulator said '${first}' instead of where it listens.`);
  lines.on('line', (line) => say(dim(`simulator: ${line}`)));
  ok('simulator', origin);
  return { origin, gone };
}

/** Writes the demo's variables where wrangler reads them; those of `.dev.vars` win, and that file is left alone. */
function writeVars(simulatorOrigin) {
  const own = devVars();
  const vars = { ...localVars({ simulatorOrigin, pepper: own.KEY_PEPPER }), ...own };
  if (own.PROVIDERS) warn('.dev.vars sets PROVIDERS: the routes of the demo tenant need one named "simulator"');
  const file = inRoot('.holdfast', 'start.vars');
  mkdirSync(inRoot('.holdfast'), { recursive: true });
  writeFileSync(file, Object.entries(vars).map(([name, value]) => `${name}=${quoted(value)}\n`).join(''), { mode: 0o600 });
  return { file, vars };
}

const quoted = (value) => {
  const quote = ["'", '"', '`'].find((mark) => !value.includes(mark));
  if (!quote) throw new PlainError('A value of .dev.vars holds all three kinds of quotes, which no env file can express.');
  return `${quote}${value}${quote}`;
};

/** Starts `wrangler dev`; returns what rejects when it ends. */
function startWrangler({ port, inspectorPort, varsFile }) {
  say(bold('Worker'));
  const where = ['--local', '--ip', '127.0.0.1', '--port', `${port}`, '--inspector-port', `${inspectorPort}`];
  const what = ['--persist-to', inRoot('.wrangler', 'state'), '--env-file', varsFile];
  const how = ['--log-level', 'warn', '--show-interactive-dev-session=false'];
  const child = background(process.execPath, [WRANGLER, 'dev', ...where, ...what, ...how], { env: wranglerEnvironment });
  return { gone: untilGone(child, 'wrangler dev') };
}

function greet(port) {
  const origin = `http://127.0.0.1:${port}`;
  const body = '{"model":"sim-detach?tokens=60&interval_ms=100","stream":true,"messages":[{"role":"user","content":"Hello"}]}';
  say(`
${green('ready')}  ${origin}

  ${bold('Demo page')}   ${origin}/#key=${demoKey()}

  ${bold('Stream')}      curl -N ${origin}/v1/chat/completions -i \\
                -H 'Authorization: Bearer ${demoKey()}' -H 'Content-Type: application/json' \\
                -d '${body}'

  ${bold('Come back')}   end that curl in mid-stream; its Location header names the generation:
              curl -N '${origin}/v1/generations/GENERATION/stream?offset=0' -H 'Authorization: Bearer ${demoKey()}'

  ${bold('Other APIs')}  Responses, Anthropic Messages and Gemini are served beside, each at its own path:
              curl -N ${origin}/v1/messages -H 'x-api-key: ${demoKey()}' -H 'Content-Type: application/json' \\
                -d '{"model":"sim-hello","max_tokens":500,"stream":true,"messages":[{"role":"user","content":"Hello"}]}'

  Ctrl-C ends everything. Data stays in .wrangler/state.
`);
}

await main(async () => {
  const { values } = parseArgs({ options: { port: { type: 'string' } } });
  const port = choosePort(values.port);
  await requireFreePort(port, 'npm start -- --port 9000');
  await setup();
  await build();
  const simulator = await startSimulator();
  const { file: varsFile, vars } = writeVars(simulator.origin);
  const worker = startWrangler({ port, inspectorPort: await freePort(), varsFile });
  const gone = Promise.race([simulator.gone, worker.gone]);
  await untilHealthy(`http://127.0.0.1:${port}/healthz`, { gone, timeout_ms: HEALTHY_WITHIN_MS, remedy: SETTINGS_REMEDY });
  await createTenant(`http://127.0.0.1:${port}`, vars.OPERATOR_KEY, demoTenant(vars.KEY_PEPPER));
  ok('tenant', 'demo');
  greet(port);
  await gone;
});
