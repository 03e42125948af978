// Checks signed webhooks with the verifier of the official SDK (npm `openai`), which is by Standard Webhooks. Reads a
// list of `{secret, headers, body}` from the standard input and prints for each whether it is accepted, as one line of
// JSON.
//
//   node webhook.mjs < messages.json

import OpenAI from 'openai';

const { webhooks } = new OpenAI({ apiKey: 'unused' });

let input = '';
for await (const chunk of process.stdin) input += chunk;

const accepted = [];
for (const { secret, headers, body } of JSON.parse(input)) {
  try {
    await webhooks.verifySignature(body, headers, secret);
    accepted.push(true);
  } catch {
    accepted.push(false);
  }
}
console.log(JSON.stringify(accepted));
