// Streams and completes with the official SDK (npm `openai`), with only base URL and key changed, and prints what its
// user saw as one line of JSON.
//
//   node openai.mjs BASE_URL KEY MODEL [RETRIES]

import OpenAI from 'openai';

const [baseURL, apiKey, model, retries = '0'] = process.argv.slice(2);
// One call each unless retries are asked for: they would hide what the first answer was.
const client = new OpenAI({ baseURL, apiKey, maxRetries: Number(retries) });
const messages = [{ role: 'user', content: 'Say something about holding fast.' }];

const raised = (error) => ({ class: error.constructor.name, status: error.status ?? null, code: error.code ?? null });

async function streamed(options) {
  const seen = { text: '', chunks: 0, id: null, finish_reason: null, usage: null, error: null };
  try {
    const stream = await client.chat.completions.create({ model, messages, stream: true, ...options });
    for await (const chunk of stream) {
      seen.chunks += 1;
      seen.id ??= chunk.id;
      seen.text += chunk.choices[0]?.delta?.content ?? '';
      seen.finish_reason ??= chunk.choices[0]?.finish_reason ?? null;
      seen.usage ??= chunk.usage ?? null;
    }
  } catch (error) {
    seen.error = raised(error);
  }
  return seen;
}

async function completed() {
  try {
    const { data, response } = await client.chat.completions.create({ model, messages }).withResponse();
    const [choice] = data.choices;
    return {
      text: choice.message.content,
      id: data.id,
      finish_reason: choice.finish_reason,
      usage: data.usage,
      generation: response.headers.get('x-generation-id'),
      error: null,
    };
  } catch (error) {
    return { error: raised(error) };
  }
}

console.log(JSON.stringify({
  stream: await streamed({}),
  stream_with_usage: await streamed({ stream_options: { include_usage: true } }),
  complete: await completed(),
}));
