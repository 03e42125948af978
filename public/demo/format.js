/** Numbers as a person reads them. */

const whole = new Intl.NumberFormat('en');

/** `4210` as `4,210 bytes`. */
export const bytes = (count) => `${whole.format(count)} ${count === 1 ? 'byte' : 'bytes'}`;

/** `4210` as `4,210`. */
export const count = (number) => whole.format(number);

/** Micro-USD as dollars, with as many digits as small amounts need: `$0.002115`, `$49.9977`. */
export function dollars(micros) {
  const digits = micros !== 0 && Math.abs(micros) < 1_000_000 ? 6 : 4;
  return `$${(micros / 1_000_000).toFixed(digits)}`;
}

/** Milliseconds as `0.9 s`, `12 s`, `3 min`. */
export function duration(ms) {
  if (ms < 10_000) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1_000)} s`;
  return `${Math.round(ms / 60_000)} min`;
}

/** `cancellation_requested` as `cancellation requested`. */
export const words = (name) => name.replaceAll('_', ' ');
