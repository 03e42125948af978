// Streams and completes with the official SDK (npm `@anthropic-ai/sdk`), with only base URL and key changed, and prints
// what its user saw as one line of JSON.
//
//   node anthropic.mjs BASE_URL KEY MODEL [RETRIES]

import Anthropic from '@anthropic-ai/sdk';

const [baseURL, apiKey, model, retries = '0'] = process.argv.slice(2);
const client = new Anthropic({ baseURL, apiKey, maxRetries: Number(retries) });
const messages = [{ role: 'user', content: 'Say something about holding fast.' }];
const request = { model, max_tokens: 1000, messages };

// The code of an error of ours stands beside its type.
const raised = (error) => ({
  class: error.constructor.name,
  status: error.status ?? null,
  code: error.error?.error?.code ?? null,
});
const counts = (usage) => (usage ? { input: usage.input_tokens, output: usage.output_tokens } : null);

async function streamed() {
  const seen = { text: '', events: 0, id: null, finish: null, usage: null, error: null };
  try {
    for await (const event of await client.messages.create({ ...request, stream: true })) {
      seen.events += 1;
      if (event.type === 'message_start') {
        seen.id = event.message.id;
        seen.usage = counts(event.message.usage);
      }
      if (event.type === 'content_block_delta' && event.delta.type === 'text_delta') seen.text += event.delta.text;
      if (event.type === 'message_delta') {
        seen.finish = event.delta.stop_reason;
        if (event.usage) seen.usage.output = event.usage.output_tokens;
      }
    }
  } catch (error) {
    seen.error = raised(error);
  }
  return seen;
}

// The helper that puts a message together.
async function assembled() {
  try {
    const message = await client.messages.stream(request).finalMessage();
    return { text: message.content.map((block) => block.text ?? '').join(''), error: null };
  } catch (error) {
    return { error: raised(error) };
  }
}

async function completed() {
  try {
    const { data, response } = await client.messages.create(request).withResponse();
    return {
      text: data.content.map((block) => block.text ?? '').join(''),
      id: data.id,
      finish: data.stop_reason,
      usage: counts(data.usage),
      generation: response.headers.get('x-generation-id'),
      error: null,
    };
  } catch (error) {
    return { error: raised(error) };
  }
}

console.log(JSON.stringify({ stream: await streamed(), assembled: await assembled(), complete: await completed() }));
