/**
 * Reads server-sent events out of bytes that may be cut anywhere, also inside a character.
 *
 * @module events
 */

/** Collects bytes and gives back the events that they complete. */
export class EventReader {
  #decoder = new TextDecoder();
  #rest = '';
  #data = [];
  #endsWithCr = false;

  /**
   * @param {Uint8Array} bytes
   * @returns {string[]} The `data` of each event that is whole now.
   */
  push(bytes) {
    const decoded = this.#decoder.decode(bytes, { stream: true });
    // A CR and its LF may come apart: they are one line end.
    const text = this.#endsWithCr && decoded.startsWith('\n') ? decoded.slice(1) : decoded;
    if (decoded) this.#endsWithCr = decoded.endsWith('\r');
    const lines = (this.#rest + text).split(/\r\n|\r|\n/);
    this.#rest = lines.pop();
    return lines.flatMap((line) => this.#take(line));
  }

  #take(line) {
    if (line === '') {
      const data = this.#data.splice(0);
      return data.length ? [data.join('\n')] : [];
    }
    if (line.startsWith('data:')) this.#data.push(line.slice(line[5] === ' ' ? 6 : 5));
    return [];
  }
}

/**
 * What one chat completion event says.
 * @param {string} data
 * @returns {{text: string, done: boolean, error: ?string}}
 */
export function chatEvent(data) {
  if (data === '[DONE]') return { text: '', done: true, error: null };
  try {
    const { choices = [], error = null } = JSON.parse(data);
    return { text: choices[0]?.delta?.content ?? '', done: false, error: error?.message ?? null };
  } catch {
    return { text: '', done: false, error: 'An event is not JSON.' };
  }
}
