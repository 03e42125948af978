/** Whether what came over several connections is the log, byte for byte. */

/**
 * @param {Uint8Array[]} pieces Everything received, in order.
 * @param {Uint8Array} log The whole log.
 */
export async function compare(pieces, log) {
  const received = joined(pieces);
  return {
    equal: received.length === log.length && received.every((byte, index) => byte === log[index]),
    receivedHash: await sha256(received),
    logHash: await sha256(log),
    logLength: log.length,
  };
}

function joined(pieces) {
  const whole = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

/** Lower-case hex; `null` where the page is not served over https or from this machine. */
async function sha256(data) {
  if (!globalThis.crypto?.subtle) return null;
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', data));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
