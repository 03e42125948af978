// The demo page in a real Chromium: what a person does there, and what the provider saw meanwhile.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, beforeEach, afterEach, describe, test } from 'node:test';

import { bold, warn } from '../../scripts/lib/report.mjs';
import { findChromium, launch, startWorld } from './world.mjs';

const executablePath = findChromium();
if (!executablePath) {
  warn(bold('the browser tests are SKIPPED: no Chromium was found (Debian: apt-get install chromium; or set HOLDFAST_CHROMIUM)'));
}

describe('demo page', { skip: executablePath ? false : 'no Chromium' }, () => {
  let world;
  let browser;
  let page;
  let complaints;

  before(async () => {
    world = await startWorld();
    browser = await launch(executablePath);
  });
  after(async () => {
    await browser?.close();
    await world?.end();
  });
  beforeEach(async () => {
    page = await browser.newPage();
    page.setDefaultTimeout(20_000);
    complaints = [];
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) complaints.push(message.text());
    });
    page.on('pageerror', (error) => complaints.push(`${error}`));
  });
  afterEach(() => page.close());

  const open = (key = world.key) => page.goto(`${world.origin}/${key ? `#key=${key}` : ''}`);
  const text = (selector) => page.textContent(selector);
  const numberAt = async (selector) => Number((await text(selector)).replaceAll(/\D/g, ''));

  /** Waits until the number in an element is above a bound. */
  const untilAbove = (selector, bound) =>
    page.waitForFunction(
      ([where, least]) => Number(document.querySelector(where).textContent.replaceAll(/\D/g, '')) > least,
      [selector, bound],
    );
  const untilCurrent = (machine, state) => page.waitForSelector(`#${machine}-states [data-state="${state}"][aria-current="step"]`);
  const untilEnabled = (id) => page.waitForSelector(`#${id}:enabled`);
  const untilProved = async () => {
    await page.waitForSelector('#proof:not([hidden])');
    await page.waitForFunction(() => document.querySelector('#charged').textContent.includes('ledger'));
  };

  async function start({ policy = 'sim-detach', tokens, interval_ms }) {
    await page.check(`input[value="${policy}"]`);
    await page.fill('#tokens', `${tokens}`);
    await page.fill('#interval', `${interval_ms}`);
    await page.click('#start');
    await untilAbove('#page-length', 2_000);
  }

  /** Drops, and returns the byte where the page stopped. */
  async function drop() {
    await page.click('#drop');
    await untilEnabled('resume');
    await untilCurrent('connection', 'disconnected');
    return numberAt('#page-length');
  }

  async function storedLog() {
    const answer = await fetch(`${world.origin}/v1/generations/${await text('#generation')}/result`, {
      headers: { authorization: `Bearer ${world.key}` },
    });
    assert.equal(answer.status, 200);
    return Buffer.from(await answer.arrayBuffer());
  }

  /** The page's claim, checked against what this process reads from the log itself. */
  async function checkProof(stoppedAt) {
    await untilProved();
    const log = await storedLog();
    const hash = createHash('sha256').update(log).digest('hex');
    assert.equal(await text('#hash-received'), hash);
    assert.equal(await text('#hash-log'), hash);
    assert.match(await text('#verdict'), /whole log, byte for byte/);
    assert.equal(await numberAt('#page-length'), log.length);
    const [before, rest] = (await text('#parts')).split('=')[0].split('+').map((part) => Number(part.replaceAll(/\D/g, '')));
    assert.equal(before, stoppedAt);
    assert.equal(before + rest, log.length);
    return log;
  }

  for (const policy of ['sim-detach', 'sim-edge']) {
    test(`${policy}: the log grows while nobody reads, and the rest is read from the very next byte`, async () => {
      await open();
      await start({ policy, tokens: 90, interval_ms: 40 });
      const stoppedAt = await drop();
      await untilCurrent('reservation', 'detached');
      await untilAbove('#log-length', stoppedAt + 3_000);
      assert.equal(await numberAt('#page-length'), stoppedAt, 'nothing arrives after the drop');
      assert.equal(await text('#readers'), '0');
      assert.ok((await numberAt('#slots')) >= 1, 'the slot is held');

      await page.click('#resume');
      await untilCurrent('connection', 'reconnected');
      const log = await checkProof(stoppedAt);
      assert.ok(log.includes('data: [DONE]'));
      const { end, bytes_sent: sent, bytes_total: total } = (await world.upstreamCalls()).at(-1);
      assert.deepEqual([end, sent], ['complete', total], 'the provider never saw anybody leave');
      await untilCurrent('upstream', 'completed');
      await untilCurrent('settlement', 'committed');
      assert.match(await text('#usage'), /^12 in, 90 out$/);
      assert.doesNotMatch(await text('#charged'), /estimated/);
      assert.deepEqual(complaints, []);
    });
  }

  test('cancel: the provider’s socket is closed, the partial stays readable, the charge is an estimate', async () => {
    await open();
    await start({ policy: 'sim-cancel', tokens: 400, interval_ms: 40 });
    const stoppedAt = await drop();
    await untilCurrent('reservation', 'cancelled');
    await page.click('#resume');
    await checkProof(stoppedAt);
    assert.match(await text('#text'), /the stream ended with an error: .*last reader left/);
    assert.match(await text('#charged'), /estimated/);
    assert.match(await text('#usage'), /^at most /);
    const { bytes_sent: sent, bytes_total: total, end } = (await world.upstreamCalls()).at(-1);
    assert.equal(end, 'client_closed');
    assert.ok(sent < total, `${sent} of ${total} bytes`);
    assert.deepEqual(complaints, []);
  });

  test('the cancel button stops a generation that is being read', async () => {
    await open();
    await start({ tokens: 400, interval_ms: 40 });
    await page.click('#cancel');
    await untilCurrent('reservation', 'cancelled');
    await untilProved();
    assert.equal(await text('#reason'), 'cancelled by request');
    assert.equal((await world.upstreamCalls()).at(-1).end, 'client_closed');
    assert.deepEqual(complaints, []);
  });

  test('the keyboard alone: start, drop, resume; the focus never gets lost', async () => {
    await open();
    await page.fill('#tokens', '90');
    await page.fill('#interval', '40');
    await page.focus('#interval');
    await page.keyboard.press('Tab');
    const focused = () => page.evaluate(() => document.activeElement.id);
    assert.equal(await focused(), 'start');
    await page.keyboard.press('Enter');
    await untilEnabled('drop');
    await untilAbove('#page-length', 2_000);
    await page.keyboard.press('Tab');
    assert.equal(await focused(), 'drop');
    await page.keyboard.press('Space');
    await untilEnabled('resume');
    await page.waitForFunction(() => document.activeElement.id === 'resume');
    const stoppedAt = await numberAt('#page-length');
    await page.keyboard.press('Enter');
    await checkProof(stoppedAt);
    await page.waitForFunction(() => document.activeElement.id === 'start');
    assert.match(await text('#story'), /several connections and is whole/);
  });

  test('the key: asked for when missing, refused in plain words when wrong, and kept nowhere', async () => {
    await open(null);
    assert.equal(await page.isVisible('#start-form'), false);
    await page.fill('#key', 'hfk_demo_0000');
    await page.click('#key-form button');
    await page.waitForFunction(() => /key/i.test(document.querySelector('#problem').textContent));
    assert.equal(await page.isVisible('#key-form'), true);
    await page.fill('#key', world.key);
    await page.click('#key-form button');
    await page.waitForSelector('#balance:not([hidden])');

    await page.close();
    page = await browser.newPage();
    await open();
    await page.waitForSelector('#balance:not([hidden])');
    const traces = await page.evaluate(() => [location.href, document.cookie, localStorage.length, sessionStorage.length, document.documentElement.outerHTML]);
    assert.equal(traces[0], `${world.origin}/`);
    assert.deepEqual(traces.slice(1, 4), ['', 0, 0]);
    assert.equal(traces[4].includes(world.key), false);
  });

  test('a refusal is shown in plain words, and the page goes on', async () => {
    await open();
    await page.evaluate(() => {
      document.querySelector('input[value="sim-detach"]').value = 'sim-detach?status=503&tag=';
    });
    await page.click('#start');
    await page.waitForSelector('#problem:not([hidden])');
    assert.match(await text('#problem'), /overloaded/, 'the provider’s own words');
    await untilCurrent('reservation', 'failed');
    await untilCurrent('settlement', 'released');
    await untilEnabled('start');
  });

  test('the policy lets no markup and no inline script in', async () => {
    await open();
    const outcome = await page.evaluate(async () => {
      const violated = new Promise((resolve) => document.addEventListener('securitypolicyviolation', ({ disposition }) => resolve(disposition), { once: true }));
      let markup = 'allowed';
      try {
        document.body.innerHTML = '<p>';
      } catch (error) {
        markup = error.name;
      }
      const script = document.createElement('script');
      script.append('globalThis.ran = true');
      document.body.append(script);
      return { markup, violated: await violated, ran: globalThis.ran ?? false };
    });
    assert.deepEqual(outcome, { markup: 'TypeError', violated: 'enforce', ran: false });
  });

  test('fits a phone: nothing to scroll sideways, before and after a run', async () => {
    await page.setViewportSize({ width: 360, height: 740 });
    await open();
    const overflow = () => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.equal(await overflow(), 0);
    await start({ tokens: 20, interval_ms: 10 });
    await untilProved();
    assert.equal(await overflow(), 0);
  });

  for (const colorScheme of ['light', 'dark']) {
    test(`${colorScheme}: text stands out from what is behind it`, async () => {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      await open();
      await start({ tokens: 20, interval_ms: 10 });
      await untilProved();
      assert.deepEqual(await page.evaluate(faintTexts), []);
    });
  }
});

/** In the page: visible texts whose contrast is below WCAG AA (4.5; disabled controls are exempt). */
function faintTexts() {
  const parse = (colour) => colour.match(/[\d.]+/g).map(Number);
  const channel = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if ((colour[3] ?? 1) > 0) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (!own || element.disabled || !element.checkVisibility()) continue;
    const [a, b] = [luminance(parse(getComputedStyle(element).color)), luminance(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) faint.push(`${element.tagName}#${element.id} ${contrast.toFixed(2)} ${element.textContent.slice(0, 30)}`);
  }
  return faint;
}
