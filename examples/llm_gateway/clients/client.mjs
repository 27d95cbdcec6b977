// The library of OpenAI for JavaScript against the gateway.
import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import OpenAI from "openai"

const { GATEWAY } = process.env
const text = "You said: a b These are 2 words."
const asked = { model: "fake", messages: [{ role: "user", content: "a b" }] }
const client = apiKey => new OpenAI({ baseURL: `${GATEWAY}/v1`, apiKey, maxRetries: 0 })
const alice = client("s3cret")

const models = await alice.models.list()
assert.deepEqual(models.data.map(model => model.id), ["fake"])

const whole = await alice.chat.completions.create(asked)
assert.equal(whole.choices[0].message.content, text)

// With pings between the tokens.
let streamed = "", finish
for await (const chunk of await alice.chat.completions.create({ ...asked, stream: true })) {
  streamed += chunk.choices[0].delta.content ?? ""
  finish = chunk.choices[0].finish_reason
}
assert.equal(streamed, text)
assert.equal(finish, "stop")

// Leaving in the middle; the caller sees that the model stops.
const stream = await alice.chat.completions.create({ ...asked, stream: true })
let n = 0
for await (const _ of stream) if (++n === 3) stream.controller.abort()
assert.equal(n, 3)

// Stopping in the middle: a short answer with an end.
const { data, response } = await alice.chat.completions.create({ ...asked, stream: true }).withResponse()
const chunks = []
for await (const chunk of data) {
  if (chunks.push(chunk) !== 3) continue
  const path = `/v1/generations/${response.headers.get("x-generation-id")}`
  const stopped = await fetch(GATEWAY + path, { method: "DELETE", headers: { authorization: "Bearer s3cret" } })
  assert.equal(stopped.status, 204)
}
assert.equal(chunks.at(-1).choices[0].finish_reason, "stop")
assert.ok(chunks.length < 9)

await assert.rejects(client("wrong").models.list(), { status: 401, code: "invalid_api_key" })
const wrong = { model: "fake", messages: [{ role: "user", content: 7 }] }
await assert.rejects(alice.chat.completions.create(wrong), { status: 400, param: "messages[0].content" })
const bob = client("b0b")
const first = await bob.chat.completions.create({ ...asked, stream: true })
await assert.rejects(bob.chat.completions.create(asked), { status: 429, code: "concurrency_limit" })
first.controller.abort()
const { version } = JSON.parse(readFileSync("node_modules/openai/package.json"))
console.log(`ok openai ${version} for JavaScript: models, whole, streaming, leaving, stopping, errors`)
