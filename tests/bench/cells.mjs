// What is measured: how many streams, of how many tokens, at which pace. Times in milliseconds.

const CELLS = {
  full: {
    long: { streams: 32, tokens: 1000, interval_ms: 0, ramp_ms: 0 },
    quick: { streams: 8, tokens: 200, interval_ms: 0, ramp_ms: 0 },
    title: 'full speed',
  },
  paced: {
    // Starts are spread, so that the first bytes of one stream do not wait for the objects of 63 others.
    long: { streams: 64, tokens: 500, interval_ms: 20, ramp_ms: 640 },
    quick: { streams: 16, tokens: 100, interval_ms: 20, ramp_ms: 160 },
    title: 'paced',
  },
};

/** Streams that are measured by themselves because they cost what a generation costs, not what a token costs. */
export const NEW_OBJECTS = {
  serial: { long: { streams: 1, rounds: 50, tokens: 1 }, quick: { streams: 1, rounds: 15, tokens: 1 } },
  burst: { long: { streams: 64, rounds: 1, tokens: 2 }, quick: { streams: 16, rounds: 1, tokens: 2 } },
};

/**
 * Before each measurement: enough generations and bytes for the compilers of the runtime to be done, so that what they
 * cost once is not counted as the cost of a token. No cell has streams of this length.
 */
export const warmUp = (quick) =>
  quick ? { streams: 8, rounds: 4, tokens: 150 } : { streams: 8, rounds: 8, tokens: 250 };

const USAGES = [
  { usage: 'asked for', include_usage: true },
  { usage: 'not asked for', include_usage: false },
];

/** The cells of a run: each pace once with the usage event asked for, and once without. */
export function cells({ quick, only }) {
  const names = only ?? Object.keys(CELLS);
  return names.flatMap((name) =>
    USAGES.map((usage) => {
      const load = CELLS[name][quick ? 'quick' : 'long'];
      const pace = load.interval_ms ? ` at ${load.interval_ms} ms` : '';
      const title = `${CELLS[name].title}: ${load.streams} streams of ${load.tokens} tokens${pace}, usage ${usage.usage}`;
      return { name, title, ...load, ...usage };
    }),
  );
}

export const CELL_NAMES = Object.keys(CELLS);

/** The model name that makes the simulator play such a stream, with stamped tokens. */
export const modelOf = ({ tokens, interval_ms = 0 }) =>
  `sim-bench?tokens=${tokens}&stamp=1${interval_ms ? `&interval_ms=${interval_ms}` : ''}`;
