// Settings for running on this machine beside the provider simulator: a demo tenant, its key, its routes.
// Everything here is public knowledge; servers that use it listen on 127.0.0.1 only.

import { createHash, createHmac } from 'node:crypto';

const DEMO_PEPPER = 'pepper-for-local-use-only';
const DEMO_SEED = createHash('sha256').update('holdfast demo').digest('hex').slice(0, 32);
const CHAT_PATH = '/v1/chat/completions';

/** A client key of `tenant` (`[a-z0-9-]{1,32}`) from 32 random hex digits; the last 8 digits are a checksum. */
export function clientKey(tenant, hex32) {
  const body = `hfk_${tenant}_${hex32}`;
  return body + createHash('sha256').update(body).digest('hex').slice(0, 8);
}

/** What is stored instead of a key: HMAC-SHA256 of the whole key under KEY_PEPPER, in hex. */
export const keyDigest = (pepper, key) => createHmac('sha256', pepper).update(key).digest('hex');

/** The key of the demo tenant, the same on every machine. */
export const demoKey = () => clientKey('demo', DEMO_SEED);

/** The simulator speaks every dialect, each as a provider of its own: a provider has one. */
const DIALECTS = {
  simulator: 'openai-chat',
  'simulator-responses': 'openai-responses',
  'simulator-messages': 'anthropic-messages',
  'simulator-gemini': 'gemini',
};

function demoRoutes() {
  const chat = (name, model, terms) => ({ name, match: { path: CHAT_PATH, model }, provider: 'simulator', ...terms });
  const at = (name, path, provider) => ({ name, match: { path }, provider, on_disconnect: 'detach' });
  return [
    chat('chat-detach', 'sim-detach*', { on_disconnect: 'detach' }),
    chat('chat-cancel', 'sim-cancel*', { on_disconnect: 'cancel' }),
    chat('chat-edge', 'sim-edge*', { on_disconnect: 'detach', owner: 'edge', total_ms: 25_000 }),
    at('responses', '/v1/responses', 'simulator-responses'),
    at('messages', '/v1/messages', 'simulator-messages'),
    at('gemini', '/v1beta/models/{model}:generateContent', 'simulator-gemini'),
    at('gemini-stream', '/v1beta/models/{model}:streamGenerateContent', 'simulator-gemini'),
    { name: 'default', provider: 'simulator', on_disconnect: 'detach', allow_override: true },
  ];
}

/** The demo tenant, whose key is `demoKey()` under this pepper. */
export const demoTenant = (pepper) => ({
  id: 'demo',
  keys: [{ digest: keyDigest(pepper, demoKey()), role: 'admin', label: 'demo' }],
  grant_micros: 50_000_000,
  config: {
    budget: { limit_micros: 50_000_000, period: 'month' },
    concurrency: 32,
    routes: demoRoutes(),
  },
});

/** The simulator as a provider of a dialect: any model, at 3 and 15 dollars per million tokens. */
const simulatorProvider = (origin, name) => ({
  name,
  origin,
  dialect: DIALECTS[name],
  secret: 'SIMULATOR_API_KEY',
  max_tokens_field: 'max_completion_tokens',
  prices: {
    version: 'local',
    models: [{ model: '*', input_micros_per_million: 3_000_000, output_micros_per_million: 15_000_000 }],
  },
});

/** The simulator as a provider of each dialect. */
export const simulatorProviders = (origin) => Object.keys(DIALECTS).map((name) => simulatorProvider(origin, name));

/**
 * All variables of a local Worker whose provider is the simulator at `simulatorOrigin`
 * (for example `http://127.0.0.1:4000`). Its tenants are created by its operator's API.
 */
export function localVars({ simulatorOrigin, pepper = DEMO_PEPPER }) {
  return {
    LOCAL: 'true',
    KEY_PEPPER: pepper,
    OPERATOR_KEY: 'operator-key-for-local-use-only',
    SIMULATOR_API_KEY: 'simulator-takes-any-key',
    PROVIDERS: JSON.stringify(simulatorProviders(simulatorOrigin)),
  };
}
