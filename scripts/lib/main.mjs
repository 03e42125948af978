// The frame of every script: its failure becomes plain words and an exit code, and no child outlives it.

import { relative } from 'node:path';

import { stopAll } from './children.mjs';
import { inRoot } from './paths.mjs';
import { PlainError, red } from './report.mjs';

const LOOK_FOR_PARENT_MS = 1_000;

/**
 * Under npm we end with npm: if it is killed without a chance to pass a signal on, nothing would be left to end us,
 * and the port would stay taken. Without npm our parent may leave us behind on purpose (`nohup`, a supervisor).
 */
function endWithNpm() {
  if (!process.env.npm_lifecycle_event) return;
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(timer);
    process.kill(process.pid, 'SIGTERM');
  }, LOOK_FOR_PARENT_MS);
  timer.unref();
}

/** The error as one that a person can act on, if it is one: options that a script does not know are, too. */
function inPlainWords(error) {
  if (error instanceof PlainError) return error;
  if (!error.code?.startsWith('ERR_PARSE_ARGS_')) return null;
  return new PlainError(error.message, `What it takes stands at the top of ${relative(inRoot(), process.argv[1])}.`);
}

/** Runs a script's main function. */
export async function main(run) {
  endWithNpm();
  try {
    await run();
  } catch (error) {
    process.exitCode = 1;
    await stopAll();
    const plain = inPlainWords(error);
    if (!plain) throw error;
    console.error(`\n${red('failed:')} ${plain.message}`);
    if (plain.remedy) console.error(plain.remedy);
  }
}
