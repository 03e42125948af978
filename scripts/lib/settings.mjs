// Reads wrangler.toml and .dev.vars: the one source of settings for every way of serving.

import { existsSync, readFileSync } from 'node:fs';

import { inRoot } from './paths.mjs';
import { PlainError } from './report.mjs';

/** Where a person mends what the Worker refuses. */
export const SETTINGS_REMEDY = 'Settings are [vars] in wrangler.toml, and .dev.vars, which wins. README.md, "Configuration", lists them.';

/** What standalone serving needs of wrangler.toml. Needs `npm ci` to have run. */
export async function wranglerSettings(path = inRoot('wrangler.toml')) {
  const { parse } = await import('smol-toml');
  const config = parse(readFileSync(path, 'utf8'));
  return {
    compatibilityDate: config.compatibility_date,
    compatibilityFlags: config.compatibility_flags ?? [],
    objects: config.durable_objects?.bindings.map(({ name, class_name }) => ({ name, className: class_name })) ?? [],
    sqliteClasses: (config.migrations ?? []).flatMap((migration) => migration.new_sqlite_classes ?? []),
    assets: config.assets,
    vars: Object.fromEntries(Object.entries(config.vars ?? {}).map(([name, value]) => [name, asText(name, value)])),
  };
}

function asText(name, value) {
  if (typeof value === 'string') return value;
  throw new PlainError(`[vars] ${name} in wrangler.toml must be a string.`, "Put JSON between ''' quotes.");
}

/** The settings and secrets of `.dev.vars`; empty without the file. */
export function devVars(path = inRoot('.dev.vars')) {
  return existsSync(path) ? parseDotenv(readFileSync(path, 'utf8')) : {};
}

const ASSIGNMENT = /^[ \t]*(?:export[ \t]+)?([A-Za-z_][\w.-]*)[ \t]*=[ \t]*(?:'([^']*)'|"((?:\\.|[^"\\])*)"|([^\r\n]*))/gm;

/** Parses dotenv text: plain, 'literal' and "escaped" values; quoted ones may span lines. */
export function parseDotenv(text) {
  const entries = [...text.matchAll(ASSIGNMENT)].map(([, name, literal, escaped, plain]) => [
    name,
    literal ?? (escaped === undefined ? plain.replace(/(^|\s)#.*$/, '').trim() : unescaped(escaped)),
  ]);
  return Object.fromEntries(entries);
}

const ESCAPES = { n: '\n', r: '\r', t: '\t' };
const unescaped = (text) => text.replace(/\\(.)/gs, (_, letter) => ESCAPES[letter] ?? letter);
