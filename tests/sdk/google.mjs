// Streams and completes with the official SDK (npm `@google/genai`), with only base URL and key changed, and prints what
// its user saw as one line of JSON. The SDK puts the model into the path as it is given: one with signs that mean
// something in a URL is given percent-encoded.
//
//   node google.mjs BASE_URL KEY MODEL

import { GoogleGenAI } from '@google/genai';

const [baseUrl, apiKey, model] = process.argv.slice(2);
const client = new GoogleGenAI({ apiKey, httpOptions: { baseUrl } });
const request = { model: encodeURIComponent(model), contents: 'Say something about holding fast.' };

// The SDK has one class of errors; the envelope of the answer is its message.
function raised(error) {
  const envelope = /\{.*\}/s.exec(error.message ?? '')?.[0];
  let code = null;
  try {
    code = JSON.parse(envelope).error.details?.[0]?.reason ?? null;
  } catch {
    // The message has no envelope of ours.
  }
  return { class: error.name, status: error.status ?? null, code };
}
const counts = (usage) =>
  usage ? { input: usage.promptTokenCount, output: (usage.candidatesTokenCount ?? 0) + (usage.thoughtsTokenCount ?? 0) } : null;

async function streamed() {
  const seen = { text: '', events: 0, id: null, finish: null, usage: null, error: null };
  try {
    for await (const chunk of await client.models.generateContentStream(request)) {
      seen.events += 1;
      seen.id ??= chunk.responseId ?? null;
      seen.text += chunk.text ?? '';
      seen.finish ??= chunk.candidates?.[0]?.finishReason ?? null;
      seen.usage = counts(chunk.usageMetadata) ?? seen.usage;
    }
  } catch (error) {
    seen.error = raised(error);
  }
  return seen;
}

async function completed() {
  try {
    const data = await client.models.generateContent(request);
    return {
      text: data.text,
      id: data.responseId,
      finish: data.candidates[0].finishReason,
      usage: counts(data.usageMetadata),
      generation: data.sdkHttpResponse?.headers?.['x-generation-id'] ?? null,
      error: null,
    };
  } catch (error) {
    return { error: raised(error) };
  }
}

console.log(JSON.stringify({ stream: await streamed(), complete: await completed() }));
