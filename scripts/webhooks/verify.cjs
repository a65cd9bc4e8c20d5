// Reads deliveries with the Standard Webhooks and CloudEvents packages and with Node's own ed25519: the broker's
// deliveries must verify, altered ones must not.

const assert = require("node:assert/strict");
const crypto = require("node:crypto");
const fs = require("node:fs");
const path = require("node:path");
const { HTTP } = require("cloudevents");
const { Webhook } = require("standardwebhooks");

const FORMATS = ["cloudevents-binary", "cloudevents-structured", "data-only", "event"];

function checkShared({ headers, secrets }, body) {
  assert.equal(secrets.length, 2);
  for (const secret of secrets) {
    const webhook = new Webhook(secret);
    assert.deepEqual(webhook.verify(body, headers), JSON.parse(body));
    assert.throws(() => webhook.verify(`${body} `, headers));
    assert.throws(() => webhook.verify(body, { ...headers, "webhook-id": "another" }));
  }
  assert.throws(() => new Webhook(Buffer.alloc(32).toString("base64")).verify(body, headers));
}

function checkPaired({ headers, publicKey }, body) {
  assert(publicKey.startsWith("whpk_"));
  const raw = Buffer.from(publicKey.slice("whpk_".length), "base64");
  const key = crypto.createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: raw.toString("base64url") }, format: "jwk" });
  const signed = headers["webhook-signature"].split(" ").filter((part) => part.startsWith("v1a,"));
  assert.equal(signed.length, 1);
  const signature = Buffer.from(signed[0].slice("v1a,".length), "base64");
  const content = `${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body}`;
  assert(crypto.verify(null, Buffer.from(content), key, signature));
  assert(!crypto.verify(null, Buffer.from(`${content} `), key, signature));
}

function checkCloudEvent({ headers, event }, body) {
  const ours = JSON.parse(event);
  const read = HTTP.toEvent({ headers, body });
  assert.equal(read.id, ours.id);
  assert.equal(read.type, ours.type);
  assert.equal(read.topic, ours.topic);
  assert.deepEqual(read.data, ours.data);
}

function main(folder) {
  const files = fs.readdirSync(folder).filter((name) => name.endsWith(".json")).sort();
  assert.deepEqual(files.map((name) => path.basename(name, ".json")), FORMATS);
  for (const name of files) {
    const delivery = JSON.parse(fs.readFileSync(path.join(folder, name), "utf8"));
    const body = Buffer.from(delivery.body, "base64").toString("utf8");
    checkShared(delivery, body);
    checkPaired(delivery, body);
    if (name.startsWith("cloudevents")) {
      checkCloudEvent(delivery, body);
    }
  }
  console.log("Node verifies the signatures, including ed25519, and reads the CloudEvents");
}

main(process.argv[2]);
