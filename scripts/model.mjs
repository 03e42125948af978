// Explores the model of the rules within its large bounds, and looks for every planted bug.
//
//   npm run model
//
// Takes some minutes and some gigabytes of memory. The last line says what came of it:
// `model: N unique states, P of P planted bugs caught`. `cargo test` explores the default bounds.

import { run } from './lib/children.mjs';
import { main } from './lib/main.mjs';
import { bold, say } from './lib/report.mjs';
import { setup } from './setup.mjs';

await main(async () => {
  await setup();
  say(bold('Model'));
  await run('cargo', ['run', '--release', '--package', 'holdfast-model'], {
    remedy: 'tests/model/src/lib.rs says how to read a history that breaks a property.',
  });
});
