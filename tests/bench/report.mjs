// Medians over the repeats, and the tables.

import { bold, dim, say } from '../../scripts/lib/report.mjs';
import { TARGETS } from './targets.mjs';

/** The middle of some numbers; of an even count, the mean of the two in the middle. */
export function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Reports of the same shape as one report of their medians; what is not a number is left out. */
export function medians(reports) {
  const [first] = reports;
  const entries = Object.keys(first).flatMap((name) => {
    const values = reports.map((report) => report[name]);
    if (values.every((value) => typeof value === 'number')) return [[name, median(values)]];
    if (values.every((value) => value && typeof value === 'object')) return [[name, medians(values)]];
    return [];
  });
  return Object.fromEntries(entries);
}

/** The figures of a cell for one target, from its repeats and what a generation costs. Times in ms. */
export function figures(runs, newObjects) {
  const of = medians(runs.map((run) => ({ ...run, tokens_per_s: (run.tokens / run.wall_ms) * 1000 })));
  const per1000 = (amount) => (amount === undefined ? undefined : (amount / of.tokens) * 1000);
  const own_ms = newObjects && newObjects.serial.cpu_ms / newObjects.serial.generations;
  return {
    ttft_ms: of.ttft_ms,
    latency_ms: of.latency_ms,
    tokens_per_s: of.tokens_per_s,
    cpu_ms_per_1000: per1000(of.cpu_ms),
    cpu_ms_per_1000_without_start: own_ms === undefined ? undefined : per1000(of.cpu_ms - own_ms * of.generations),
    peak_rss_mib: of.peak_rss_kib && of.peak_rss_kib / 1024,
    ...storedFigures(of.stored, of.tokens),
  };
}

function storedFigures(stored, tokens) {
  if (!stored) return {};
  const { generations, reservation } = stored;
  const each = Object.fromEntries(Object.entries(reservation).map(([table, rows]) => [table, rows / generations]));
  return {
    log_rows_per_1000: (reservation.chunk / tokens) * 1000,
    rows_per_generation: { ...each, state_writes: stored.state_writes / generations },
    file_bytes_per_log_byte: stored.file_bytes / stored.log_bytes,
  };
}

const number = (value, digits = 1) => (Number.isFinite(value) ? value.toFixed(digits) : '-');
const pair = ({ p50, p99 }, digits) => `${number(p50, digits)} / ${number(p99, digits)}`;
const times = (value, base) => (Number.isFinite(value / base) ? `${(value / base).toFixed(2)}x` : '-');

function printTable(header, rows) {
  const widths = header.map((_, column) => Math.max(...[header, ...rows].map((row) => row[column].length)));
  const line = (row) => row.map((cell, column) => (column ? cell.padStart(widths[column]) : cell.padEnd(widths[column])));
  say(`  ${dim(line(header).join('  '))}`);
  for (const row of rows) say(`  ${line(row).join('  ')}`);
}

/** Prints the table of a cell: `byTarget` maps target names to figures. Ratios are to the bare Worker. */
export function printCell(title, byTarget) {
  const { bare, direct } = byTarget;
  say(`\n${bold(title)}`);
  const header = ['target', 'TTFT ms p50 / p99', 'latency ms p50 / p99', 'added p50 / p99', 'tokens/s', 'ratio',
    'CPU ms/1000', 'ratio', 'without start', 'ratio', 'peak MiB', 'log rows/1000'];
  const added = ({ latency_ms }) =>
    direct ? { p50: latency_ms.p50 - direct.latency_ms.p50, p99: latency_ms.p99 - direct.latency_ms.p99 } : {};
  const rows = Object.entries(byTarget).map(([target, of]) => [
    TARGETS[target].title,
    pair(of.ttft_ms),
    pair(of.latency_ms, 2),
    target === 'direct' ? '-' : pair(added(of), 2),
    number(of.tokens_per_s, 0),
    times(of.tokens_per_s, bare?.tokens_per_s),
    number(of.cpu_ms_per_1000),
    times(of.cpu_ms_per_1000, bare?.cpu_ms_per_1000),
    number(of.cpu_ms_per_1000_without_start),
    times(of.cpu_ms_per_1000_without_start, bare?.cpu_ms_per_1000_without_start),
    number(of.peak_rss_mib, 0),
    number(of.log_rows_per_1000),
  ]);
  printTable(header, rows);
  for (const [target, { rows_per_generation, file_bytes_per_log_byte }] of Object.entries(byTarget)) {
    if (!rows_per_generation) continue;
    const rows = Object.entries(rows_per_generation).map(([table, count]) => `${table} ${number(count)}`);
    const files = `${number(file_bytes_per_log_byte, 2)} bytes on disk for a byte of log`;
    say(dim(`  ${TARGETS[target].title}, in each generation's object: ${rows.join(', ')}; ${files}`));
  }
}

/** Prints what new generations cost: `byTarget` maps target names to the medians of `measureNewObjects`. */
export function printNewObjects(byTarget) {
  say(`\n${bold('new generations, of one or two tokens')}`);
  const rows = Object.entries(byTarget).map(([target, { first, serial, burst }]) => [
    TARGETS[target].title,
    number(first.ttft_ms.p50),
    pair(serial.ttft_ms),
    number(serial.cpu_ms / serial.generations, 2),
    pair(burst.ttft_ms),
  ]);
  const burst = Object.values(byTarget)[0].burst.generations;
  printTable(['target', 'first request TTFT ms', 'one at a time p50 / p99', 'CPU ms each', `${burst} at once p50 / p99`], rows);
}
