/** Shows a session and the balance. Text reaches the document as text, never as markup. */

import * as format from './format.js';

const byId = (id) => document.getElementById(id);

const STATES = {
  connection: ['connected', 'disconnected', 'reconnected'],
  upstream: ['prepared', 'submitted', 'processing', 'completed', 'incomplete', 'failed', 'cancelled', 'unknown'],
  reservation: ['active', 'detached', 'cancellation_requested', 'completed', 'cancelled', 'failed'],
  settlement: ['pending', 'committed', 'released'],
};

function element(tag, { text = '', className = '' } = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}

/** Builds the lists of states once. */
export function prepare() {
  for (const [machine, states] of Object.entries(STATES)) {
    const items = states.map((state) => {
      const item = element('li', { text: format.words(state) });
      item.dataset.state = state;
      return item;
    });
    byId(`${machine}-states`).replaceChildren(...items);
  }
}

/** Shows what is known. */
export function show(session) {
  showProblem(session.problem);
  showMachines(session);
  showBytes(session);
  showText(session);
  showHistory(session);
  showProof(session);
  showButtons(session);
  say(story(session));
}

/** One sentence about what is wrong, or nothing. */
export function showProblem(problem) {
  const place = byId('problem');
  place.hidden = !problem;
  if (place.textContent !== (problem ?? '')) place.textContent = problem ?? '';
}

/** The tenant's balance. */
export function showBalance(balance) {
  byId('balance').hidden = false;
  byId('available').textContent = format.dollars(balance.available_micros);
  byId('held').textContent = format.dollars(balance.held_micros);
  byId('spent').textContent = format.dollars(balance.spent_micros);
  byId('slots').textContent = format.count(balance.slots_in_use);
  byId('consistent').textContent = balance.check.consistent ? 'agree' : 'DISAGREE';
}

function mark(session, machine, current) {
  for (const item of byId(`${machine}-states`).children) {
    const { state } = item.dataset;
    item.classList.toggle('seen', session.seen.has(`${machine} ${state}`));
    if (state === current) item.setAttribute('aria-current', 'step');
    else item.removeAttribute('aria-current');
  }
}

function facts(values) {
  for (const [id, value] of Object.entries(values)) byId(id).textContent = value ?? '–';
}

function showMachines(session) {
  const { status } = session;
  byId('generation').textContent = session.id ?? '{id}';
  mark(session, 'connection', status?.connection.state);
  mark(session, 'upstream', status?.upstream.state);
  mark(session, 'reservation', status?.lifecycle);
  mark(session, 'settlement', status?.settlement);
  const { connection, upstream, cost } = status ?? {};
  document.querySelector('main').classList.toggle('over', session.closed);
  facts({
    readers: connection && format.count(connection.readers),
    furthest: connection && format.count(connection.furthest_offset),
    policy: status?.on_disconnect,
    attempt: upstream && `epoch ${upstream.epoch}`,
    owner: status && (status.owner === 'edge' ? 'the Worker (edge)' : 'the object'),
    operation: upstream?.operation_id,
    finish: upstream?.finish_reason,
    hold: cost && format.dollars(cost.hold_micros),
    charged: cost && charged(cost, status.settled),
    usage: status?.usage && usage(status.usage),
    reason: status?.reason && format.words(status.reason),
  });
}

function charged({ settled_micros, estimated }, acknowledged) {
  if (settled_micros === null) return 'not yet';
  const how = estimated ? ', estimated' : '';
  return `${format.dollars(settled_micros)}${how}${acknowledged ? ', in the ledger' : ''}`;
}

function usage({ kind, input_tokens, output_tokens }) {
  const bound = kind === 'exact' ? '' : 'at most ';
  return `${bound}${format.count(input_tokens)} in, ${format.count(output_tokens)} out`;
}

/** The log's expected length, so that the tracks fill up instead of being full at once. */
function expectedLength(session) {
  if (session.closed) return session.logLength;
  const first = session.connections[0];
  const tokens = first?.text.split(/\s+/).length ?? 0;
  const known = tokens > 2 ? (first.to / tokens) * (session.tokens + 2) : session.tokens * 230;
  return Math.max(known, session.logLength);
}

function showBytes(session) {
  const scale = expectedLength(session) || 1;
  const log = session.logLength;
  const [first, ...later] = session.connections;
  const pageBars = [first, ...later].filter(Boolean).map((bar, index) => ({ ...bar, kind: index ? 'later' : 'first' }));
  const logBars = [{ from: 0, to: log, kind: 'stored' }, ...session.away.map((bar) => ({ ...bar, kind: 'away' }))];
  draw(byId('log-track'), logBars, scale);
  draw(byId('page-track'), pageBars, scale);
  byId('log-length').textContent = format.bytes(log);
  byId('page-length').textContent = format.bytes(session.offset);
}

function draw(track, bars, scale) {
  while (track.children.length > bars.length) track.lastChild.remove();
  while (track.children.length < bars.length) track.append(element('span'));
  bars.forEach(({ from, to, kind }, index) => {
    const { style, classList } = track.children[index];
    track.children[index].className = `bar ${kind}`;
    classList.toggle('empty', to <= from);
    style.left = `${(100 * from) / scale}%`;
    style.width = `${(100 * (to - from)) / scale}%`;
  });
}

/** Appends what is new; the text that stands is not touched, so that it can be selected and read. */
function showText(session) {
  const place = byId('text');
  const atEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 8;
  if (place.dataset.session !== String(session.number)) {
    place.dataset.session = session.number;
    place.replaceChildren();
  }
  session.connections.forEach((connection, index) => {
    if (index && place.children.length <= 2 * index) {
      place.append(element('span', { className: 'seam', text: `dropped and resumed at byte ${format.count(connection.from)}` }));
    }
    const part = place.children[2 * index] ?? place.appendChild(element('span', { className: index ? 'later' : 'first' }));
    if (part.textContent !== connection.text) part.textContent = connection.text;
  });
  if (session.streamError && !place.querySelector('.stream-error')) {
    place.append(element('span', { className: 'seam stream-error', text: `the stream ended with an error: ${session.streamError}` }));
  }
  if (atEnd) place.scrollTop = place.scrollHeight;
}

function showHistory({ history, number }) {
  const place = byId('history');
  if (place.dataset.session !== String(number)) {
    place.dataset.session = number;
    place.replaceChildren();
  }
  const fresh = history.slice(place.children.length);
  if (!fresh.length) return;
  const start = history[0].at;
  place.append(...fresh.map(({ at, text }) => {
    const item = element('li');
    item.append(element('time', { text: `+${format.duration(at - start)}` }), element('span', { text }));
    return item;
  }));
  place.scrollTop = place.scrollHeight;
}

function showProof({ proof, connections }) {
  byId('proof').hidden = !proof;
  if (!proof) return;
  const parts = connections.map(({ from, to }) => format.count(to - from));
  const sum = connections.reduce((total, { from, to }) => total + to - from, 0);
  byId('proof').classList.toggle('bad', !proof.equal);
  byId('verdict').textContent = proof.equal
    ? 'What this page received is the whole log, byte for byte.'
    : 'What this page received differs from the log.';
  byId('parts').textContent = parts.length > 1 ? `${parts.join(' + ')} = ${format.bytes(sum)}` : format.bytes(sum);
  byId('whole').textContent = format.bytes(proof.logLength);
  byId('hash-received').textContent = proof.receivedHash ?? 'needs https; the bytes themselves were compared';
  byId('hash-log').textContent = proof.logHash ?? 'needs https; the bytes themselves were compared';
}

/** Enables what can be done now. A button that goes away hands the focus on, so that the keyboard is not lost. */
function showButtons(session) {
  const { phase, id, closed } = session;
  const enabled = {
    start: phase !== 'starting',
    drop: phase === 'reading',
    resume: phase === 'dropped',
    cancel: id !== null && !closed && phase !== 'ended' && session.status?.lifecycle !== 'cancellation_requested',
  };
  const focused = document.activeElement;
  for (const [name, on] of Object.entries(enabled)) byId(name).disabled = !on;
  byId('resume').textContent = phase === 'dropped' ? `Resume at byte ${format.count(session.offset)}` : 'Resume';
  if (focused?.disabled) ['resume', 'drop', 'start'].map(byId).find((button) => !button.disabled)?.focus();
}

function say(text) {
  const place = byId('story');
  if (place.textContent !== text) place.textContent = text;
}

/** What goes on, in one sentence. Numbers that run stay out of it: screen readers read each change. */
function story(session) {
  const { phase, status, connections, proof } = session;
  const lifecycle = status?.lifecycle;
  if (phase === 'idle') return 'Start a generation, then drop the connection and watch what goes on without you.';
  if (phase === 'starting') return 'Starting: the hold is placed before anything is sent to the provider.';
  if (phase === 'ended') return ending(lifecycle, proof, connections.length);
  if (lifecycle === 'cancellation_requested') return 'Stopping: the provider’s socket is being closed.';
  if (phase === 'reading') {
    return connections.length > 1
      ? 'Reading on from the very next byte: first what was stored, then live.'
      : 'Streaming: bytes reach this page as the provider sends them. Drop the connection now.';
  }
  return dropped(session, lifecycle);
}

function dropped(session, lifecycle) {
  if (lifecycle === 'completed') return 'The generation ended without you and is settled. What you missed waits in the log: resume to read it.';
  if (lifecycle === 'cancelled') return 'You left, so the route stopped the work. What came before is stored: resume to read to the end.';
  if (lifecycle === 'failed') return 'The generation failed while you were away. What came before is stored: resume to read it.';
  if (session.status?.on_disconnect === 'cancel') return 'The connection is closed. This route cancels when the last reader leaves.';
  return 'Nobody reads. The provider goes on, and Holdfast stores what it sends: watch the log grow.';
}

function ending(lifecycle, proof, connections) {
  if (lifecycle === 'cancelled') return 'Cancelled. The partial answer stays readable, and the hold is settled by an upper bound of what was used.';
  if (lifecycle === 'failed') return 'The generation failed. Its readers got an error in the stream, never a clean end.';
  if (!proof) return 'Ended. Comparing what arrived with the log.';
  return connections > 1 ? 'Done. The answer came over several connections and is whole.' : 'Done. Start another, and drop the connection this time.';
}
