// The least that a Worker in the way can be: the provider's answer as it is. What Holdfast is compared with.

export default {
  fetch(request, env) {
    const { pathname, search } = new URL(request.url);
    return fetch(new Request(env.ORIGIN + pathname + search, request));
  },
};
