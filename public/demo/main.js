/**
 * Wires the page: key, form, buttons, balance. The key lives in this module's memory and nowhere else. It pays for the
 * balance and for tokens; generations run with a token, as they do in a page that has no key.
 */

import { Holdfast } from '../holdfast.js';
import { Session } from './session.js';
import { duration } from './format.js';
import { prepare, show, showBalance, showProblem } from './view.js';

const BALANCE_MS = 1_000;
const byId = (id) => document.getElementById(id);

/** The deployment, for the holder of the key and for the holder of a token that it mints. */
let holdfast = null;
let visitor = null;
let session = null;
let sessions = 0;

/** Takes the key out of the address, so that it stays in no history and no bookmark. */
function keyFromAddress() {
  const key = new URLSearchParams(location.hash.slice(1)).get('key');
  if (key) history.replaceState(null, '', location.pathname + location.search);
  return key;
}

function useKey(key) {
  if (key) {
    const owner = new Holdfast({ key });
    holdfast = owner;
    visitor = new Holdfast({ token: () => owner.mintToken() });
  }
  byId('key-form').hidden = holdfast !== null;
  byId('start-form').hidden = holdfast === null;
  if (key) newSession(0);
}

function newSession(tokens) {
  session?.leave();
  sessions += 1;
  session = new Session(visitor, { number: sessions, tokens });
  let drawing = false;
  const shown = session;
  // Many chunks may come between two frames; a page that is not visible draws no frames and needs none.
  session.addEventListener('change', () => {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => {
      drawing = false;
      if (shown === session) show(shown);
    });
  });
  show(session);
  return session;
}

function requestBody() {
  const { policy } = byId('start-form').elements;
  const model = `${policy.value}?tokens=${byId('tokens').value}&interval_ms=${byId('interval').value}`;
  return { model, stream: true, messages: [{ role: 'user', content: 'Tell me something about holding fast.' }] };
}

function showLength() {
  const ms = byId('tokens').valueAsNumber * byId('interval').valueAsNumber;
  byId('length').textContent = Number.isFinite(ms) ? `about ${duration(ms)}` : '';
}

/** Asks for the balance for as long as the page is open and looked at. */
async function followBalance() {
  for (;;) {
    if (holdfast && document.visibilityState === 'visible') await showCurrentBalance();
    await new Promise((resolve) => setTimeout(resolve, BALANCE_MS));
  }
}

async function showCurrentBalance() {
  const asked = holdfast;
  try {
    showBalance(await asked.balance());
  } catch (error) {
    if (error.status === 401) return askForKey(error, asked);
    // A server that is away shows at the running generation; without one, it shows here.
    if (session?.phase === 'idle') showProblem(error.message);
  }
}

function askForKey(error, refused) {
  if (refused !== holdfast) return;
  holdfast = null;
  useKey(null);
  showProblem(`${error.message} Check the key.`);
}

prepare();
showLength();
useKey(keyFromAddress());
addEventListener('hashchange', () => useKey(keyFromAddress()));
byId('start-form').addEventListener('input', showLength);
byId('key-form').addEventListener('submit', (event) => {
  event.preventDefault();
  showProblem(null);
  useKey(byId('key').value.trim());
  byId('key').value = '';
});
byId('start-form').addEventListener('submit', (event) => {
  event.preventDefault();
  newSession(byId('tokens').valueAsNumber).start(requestBody());
});
byId('drop').addEventListener('click', () => session.drop());
byId('resume').addEventListener('click', () => session.resume());
byId('cancel').addEventListener('click', () => session.cancel());
followBalance();
