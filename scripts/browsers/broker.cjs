// The broker under attack: its process, its access log, and its stored data.
'use strict';

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const readline = require('node:readline');

/** A running broker with one topic, type, subscription, event and member of a shared group. */
class Broker {
    /** Starts `binary`; pages of `origins` may call it. */
    static async start(binary, origins) {
        const broker = new Broker();
        broker.folder = fs.mkdtempSync(path.join(os.tmpdir(), 'attack-browsers-'));
        broker.requests = [];
        broker.waiting = [];
        const env = {
            ...process.env,
            EVENT_BROKER__SERVER__CORS__ALLOWED_ORIGINS: JSON.stringify(origins),
            // The broker's own deliveries would change its stored data.
            EVENT_BROKER__DISPATCH__ENABLED: 'false',
            EVENT_BROKER__LOGGING__FORMAT: 'json',
            EVENT_BROKER__LOGGING__LEVEL: 'warn,event_broker::access=debug',
        };
        const listen = ['serve', '--listen', '127.0.0.1:0', '--data', path.join(broker.folder, 'data')];
        broker.process = spawn(binary, listen, { env, stdio: ['ignore', 'pipe', 'pipe'] });
        readline.createInterface({ input: broker.process.stderr }).on('line', (line) => broker.log(line));
        const first = await new Promise((resolve, reject) => {
            readline.createInterface({ input: broker.process.stdout }).once('line', resolve);
            broker.process.once('exit', (code) => reject(new Error(`the broker ended with ${code}`)));
        });
        broker.url = first.replace('listening on ', '');
        broker.port = new URL(broker.url).port;
        await broker.prepare();
        return broker;
    }

    /** Creates the data that an attack could read, change or claim. */
    async prepare() {
        await this.call('POST', '/v1/topics', { id: 'shop.orders', streaming: true });
        await this.call('POST', '/v1/event-types', { id: 'order.created', topic: 'shop.orders' });
        await this.call('POST', '/v1/subscriptions', {
            code: 'victim', topic: 'shop.orders', eventTypes: [{ type: 'order.created' }], target: 'https://receiver.example/',
        });
        const member = { consumerGroup: 'billing', topic: 'shop.orders', distribution: 'shared', sessionTimeout: 'PT1H' };
        this.consumer = (await this.call('POST', '/v1/consumers', member)).data.id;
        await this.call('POST', '/v1/events', this.event('the secret'));
    }

    event(subject) {
        const tenant = 'a1b2c3d4-e5f6-7890-abcd-ef1234567890';
        return { type: 'order.created', source: 'test', subject, tenant, data: { secret: 'the secret' } };
    }

    /** Calls the broker as a program that is not a browser. */
    async call(method, target, body) {
        const headers = body ? { 'content-type': 'application/json' } : {};
        const answer = await fetch(this.url + target, { method, headers, body: body && JSON.stringify(body) });
        const text = await answer.text();
        if (!answer.ok) throw new Error(`${method} ${target}: ${answer.status} ${text}`);
        return JSON.parse(text);
    }

    /** Everything that an attack could change. */
    async snapshot() {
        const lists = ['/v1/log?after=0', '/v1/topics', '/v1/event-types', '/v1/subscriptions', '/v1/claims?handler=billing'];
        const found = await Promise.all(lists.map((list) => this.call('GET', list)));
        return JSON.stringify(found);
    }

    log(line) {
        let entry;
        try { entry = JSON.parse(line); } catch { return; }
        const fields = entry.fields ?? entry;
        if (fields.method === undefined) return;
        this.requests.push({ method: fields.method, path: fields.path, status: Number(fields.status) });
        this.waiting.splice(0).forEach((wake) => wake());
    }

    /** The next request with this method and path at index `mark` or later; an error after 20 seconds. */
    async request(mark, method, target) {
        const end = Date.now() + 20_000;
        for (;;) {
            const found = this.requests.slice(mark).find((it) => it.method === method && it.path === target);
            if (found) return found;
            const left = end - Date.now();
            if (left <= 0) throw new Error(`${method} ${target} did not reach the broker`);
            await new Promise((resolve) => {
                const timer = setTimeout(resolve, left);
                this.waiting.push(() => { clearTimeout(timer); resolve(); });
            });
        }
    }

    async stop() {
        const ended = new Promise((resolve) => this.process.once('exit', resolve));
        this.process.kill('SIGTERM');
        await ended;
        fs.rmSync(this.folder, { recursive: true, force: true });
    }
}

module.exports = { Broker };
