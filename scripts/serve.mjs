// Serves the Worker on standalone workerd, with storage on local disk: no account, no other program.
//
//   npm run serve -- [--port 8787] [--storage .holdfast/serve] [--host 127.0.0.1]
//
// Settings come from [vars] in wrangler.toml; `.dev.vars` overrides them and holds the secrets. One is for this server
// alone: EGRESS_ALLOW, the private networks that it may connect to (scripts/lib/egress.mjs).

import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';

import { build } from './build.mjs';
import { background, untilGone } from './lib/children.mjs';
import { choosePort, requireFreePort, untilHealthy } from './lib/http.mjs';
import { main } from './lib/main.mjs';
import { inRoot, workerdBinary } from './lib/paths.mjs';
import { bold, green, say, warn } from './lib/report.mjs';
import { SETTINGS_REMEDY, devVars, wranglerSettings } from './lib/settings.mjs';
import { setup } from './setup.mjs';
import { writeConfig } from './workerd-config.mjs';

/** A hint for what makes every request fail; the Worker itself says the rest. */
function hintAtSettings(vars) {
  if (!vars.KEY_PEPPER) warn('KEY_PEPPER is not set: put KEY_PEPPER=... (16 characters or more) into .dev.vars');
  if (!vars.OPERATOR_KEY && vars.LOCAL !== 'true') warn('OPERATOR_KEY is not set: put OPERATOR_KEY=... (16 characters or more) into .dev.vars');
}

await main(async () => {
  const { values } = parseArgs({
    options: { port: { type: 'string' }, storage: { type: 'string' }, host: { type: 'string', default: '127.0.0.1' } },
  });
  const { host } = values;
  const port = choosePort(values.port);
  await requireFreePort(port, 'npm run serve -- --port 9000', host);
  await setup();
  const folder = await build();
  const vars = devVars();
  hintAtSettings({ ...(await wranglerSettings()).vars, ...vars });

  const storage = values.storage ? resolve(values.storage) : inRoot('.holdfast', 'serve');
  const out = join(storage, 'config.capnp');
  await writeConfig({ out, port, host, storage: join(storage, 'objects'), build: folder, vars });
  say(bold('Serve'));
  const gone = untilGone(background(workerdBinary(), ['serve', out]), 'workerd');
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host;
  await untilHealthy(`http://${reachable}:${port}/healthz`, { gone, remedy: SETTINGS_REMEDY });
  say(`${green('ready')}  http://${reachable}:${port}  storage in ${storage}  (Ctrl-C ends it)`);
  await gone;
});
