// Serves public/ on standalone workerd as the platform's asset server does for what this product uses:
// GET and HEAD, `/` and folders by their index.html, `/name` by name.html, 404 otherwise.

const TYPES = {
  css: 'text/css; charset=utf-8',
  gif: 'image/gif',
  html: 'text/html; charset=utf-8',
  ico: 'image/x-icon',
  jpg: 'image/jpeg',
  js: 'text/javascript; charset=utf-8',
  json: 'application/json',
  mjs: 'text/javascript; charset=utf-8',
  png: 'image/png',
  svg: 'image/svg+xml',
  txt: 'text/plain; charset=utf-8',
  webmanifest: 'application/manifest+json',
  webp: 'image/webp',
  woff2: 'font/woff2',
  xml: 'application/xml',
};

function candidates(path) {
  if (path.endsWith('/')) return [`${path}index.html`];
  const last = path.slice(path.lastIndexOf('/') + 1);
  return last.includes('.') ? [path] : [`${path}.html`, `${path}/index.html`];
}

export default {
  async fetch(request, { FILES }) {
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      return new Response(null, { status: 405, headers: { allow: 'GET, HEAD' } });
    }
    for (const path of candidates(new URL(request.url).pathname)) {
      const file = await FILES.fetch(`http://files${path}`, { method: request.method });
      if (file.status !== 200) continue;
      const headers = { 'cache-control': 'public, max-age=0, must-revalidate', 'x-content-type-options': 'nosniff' };
      headers['content-type'] = TYPES[path.slice(path.lastIndexOf('.') + 1)] ?? 'application/octet-stream';
      return new Response(file.body, { headers });
    }
    return new Response('Not found\n', { status: 404, headers: { 'content-type': 'text/plain; charset=utf-8' } });
  },
};
