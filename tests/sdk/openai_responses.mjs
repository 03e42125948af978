// Streams and completes with the Responses API of the official SDK (npm `openai`), with only base URL and key changed, and
// prints what its user saw as one line of JSON.
//
//   node openai_responses.mjs BASE_URL KEY MODEL [RETRIES]

import OpenAI from 'openai';

const [baseURL, apiKey, model, retries = '0'] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: Number(retries) });
const input = 'Say something about holding fast.';

const raised = (error) => ({ class: error.constructor.name, status: error.status ?? null, code: error.code ?? null });
const counts = (usage) => (usage ? { input: usage.input_tokens, output: usage.output_tokens } : null);

async function streamed() {
  const seen = { text: '', events: 0, id: null, finish: null, usage: null, error: null };
  try {
    for await (const event of await client.responses.create({ model, input, stream: true })) {
      seen.events += 1;
      seen.id ??= event.response?.id ?? null;
      if (event.type === 'response.output_text.delta') seen.text += event.delta;
      if (event.type === 'response.completed' || event.type === 'response.incomplete') {
        seen.finish = event.type;
        seen.usage = counts(event.response.usage);
      }
    }
  } catch (error) {
    seen.error = raised(error);
  }
  return seen;
}

async function completed() {
  try {
    const { data, response } = await client.responses.create({ model, input }).withResponse();
    return {
      text: data.output_text,
      id: data.id,
      finish: data.status,
      usage: counts(data.usage),
      generation: response.headers.get('x-generation-id'),
      error: null,
    };
  } catch (error) {
    return { error: raised(error) };
  }
}

console.log(JSON.stringify({ stream: await streamed(), complete: await completed() }));
