// Rings the Worker's cron when it is asked to: for standalone workerd, which has none of its own.
export default {
  async fetch(request, { HOLDFAST }) {
    const { outcome } = await HOLDFAST.scheduled({ scheduledTime: new Date(), cron: '* * * * *' });
    return new Response(`${outcome}\n`);
  },
};
