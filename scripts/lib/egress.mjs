// What a server on standalone workerd may connect to. Its network drops every other address, also behind a public name:
// of providers, and of the webhooks that tenants name.

import { isIPv4, isIPv6 } from 'node:net';

import { PlainError } from './report.mjs';

const LOOPBACK = ['127.0.0.1/32', '::1/128'];

/** The addresses that the origins of PROVIDERS name themselves: literal ones, and this machine. */
function named(providers) {
  let origins;
  try {
    origins = JSON.parse(providers).map(({ origin }) => new URL(origin));
  } catch {
    return []; // The Worker says what is wrong with them.
  }
  return origins.flatMap(({ hostname }) => {
    if (hostname === 'localhost') return LOOPBACK;
    return isIPv4(hostname) ? [`${hostname}/32`] : [];
  });
}

/** A block as it is written, `10.0.0.0/8` or `fd00::/8`; one address alone is a block too. */
function block(text) {
  const [address, length, ...more] = text.split('/');
  const bits = isIPv4(address) ? 32 : isIPv6(address) ? 128 : 0;
  const fits = length === undefined || (/^\d{1,3}$/.test(length) && Number(length) <= bits);
  if (!bits || !fits || more.length) {
    throw new PlainError(`EGRESS_ALLOW: '${text}' is no network.`, 'Write networks like 10.0.0.0/8 fd00::/8, with spaces or commas between them.');
  }
  return `${address}/${length ?? bits}`;
}

/**
 * The list `allow` of the network: the public Internet, the addresses that PROVIDERS names as such, the networks of
 * EGRESS_ALLOW, and with LOCAL this machine.
 */
export function allowedNetworks({ PROVIDERS = '[]', EGRESS_ALLOW = '', LOCAL }) {
  const added = EGRESS_ALLOW.split(/[\s,]+/).filter(Boolean).map(block);
  return [...new Set(['public', ...named(PROVIDERS), ...(LOCAL === 'true' ? LOOPBACK : []), ...added])];
}
