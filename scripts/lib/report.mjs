// What the scripts say to a person: steps, their time, and failures in one plain sentence.

const colour = process.stdout.isTTY && !process.env.NO_COLOR;
const paint = (code) => (text) => (colour ? `\x1b[${code}m${text}\x1b[0m` : text);

export const bold = paint('1');
export const dim = paint('2');
export const green = paint('32');
export const red = paint('31');
export const yellow = paint('33');

/** A failure that a person can act on: `message` says what is wrong, `remedy` how to get on. */
export class PlainError extends Error {
  constructor(message, remedy = '') {
    super(message);
    this.remedy = remedy;
  }
}

/** `1234` ms as `1.2 s`, `83000` ms as `1 min 23 s`. */
export function duration(ms) {
  if (ms < 100_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

/** Bytes as KiB, as the platform counts its limits. */
export const kib = (bytes) => `${(bytes / 1024).toFixed(0)} KiB`;

let listener = null;

/** Has `hear` called with every line that is said from now on, by us or by a child that `run` runs; `null` ends it. */
export function listen(hear) {
  listener = hear;
}

/** Whether somebody listens. */
export const isHeard = () => listener !== null;

/** Passes lines on to whoever listens. */
export const heard = (text) => text.split('\n').forEach((line) => listener?.(line));

export function say(text = '') {
  console.log(text);
  heard(text);
}
export const ok = (name, detail = '') => say(`  ${green('ok')}   ${name}${detail ? dim(`  ${detail}`) : ''}`);
export const doing = (name, detail = '') => say(`  ${bold('..')}   ${name}${detail ? dim(`  ${detail}`) : ''}`);
export const warn = (text) => say(`  ${yellow('note')} ${text}`);

/** Says that a step goes on whenever nothing else has been printed for a while. `heardNow` is to be called at each output. */
export function silenceTicker(name, silence_ms = 5_000) {
  const started = Date.now();
  const beat = () => doing(`${name} goes on`, duration(Date.now() - started));
  let timer = setInterval(beat, silence_ms);
  return {
    heardNow: () => {
      clearInterval(timer);
      timer = setInterval(beat, silence_ms);
    },
    end: () => clearInterval(timer),
  };
}

/** Shows that a silent step is alive: rewrites one line on a terminal, adds a line now and then elsewhere. */
export function ticker(name) {
  const started = Date.now();
  const line = () => `  ${bold('..')}   ${name} ${dim(`(${duration(Date.now() - started)})`)}`;
  const timer = setInterval(
    () => (process.stdout.isTTY ? process.stdout.write(`\r${line()}`) : say(line())),
    process.stdout.isTTY ? 500 : 15_000,
  );
  return () => {
    clearInterval(timer);
    if (process.stdout.isTTY) process.stdout.write('\r\x1b[K');
    return Date.now() - started;
  };
}
