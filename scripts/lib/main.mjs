// The frame of every script: its failure becomes plain words and an exit code, and no child outlives it.

import { stopAll } from './children.mjs';
import { PlainError, red } from './report.mjs';

/** Runs a script's main function. */
export async function main(run) {
  try {
    await run();
  } catch (error) {
    process.exitCode = 1;
    await stopAll();
    if (!(error instanceof PlainError)) throw error;
    console.error(`\n${red('failed:')} ${error.message}`);
    if (error.remedy) console.error(error.remedy);
  }
}
