import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { TransportError } from "@hashbrownai/core";
import { type AntiphonFrame, AntiphonTransport } from "../src/index.ts";
import { collect, encode, makeRequest, type Params, serve, translate } from "./server.ts";

const CREATED = { type: "response.created", response: {} };
const COMPLETED = { type: "response.completed", response: { incomplete_details: null } };
const INCOMPLETE = { type: "response.incomplete", response: { incomplete_details: { reason: "max_output_tokens" } } };
const START = { type: "generation-start" };
const FINISH = { type: "generation-finish" };
const EMULATED: Partial<Params> = {
  toolChoice: "required",
  tools: [{ name: "output", description: "", parameters: {} }],
};

const textDelta = (delta: string) => ({ type: "response.output_text.delta", outputIndex: 0, delta });

function callFrames(name: string, ...deltas: string[]): object[] {
  const item = { type: "function_call", call_id: "call_1", name };
  return [
    { type: "response.output_item.added", outputIndex: 1, item },
    ...deltas.map((delta) => ({ type: "response.function_call_arguments.delta", outputIndex: 1, delta })),
  ];
}

const callDone = (args: string) => ({ type: "response.function_call_arguments.done", outputIndex: 1, arguments: args });

const chunk = (delta: object) => ({
  type: "generation-chunk",
  chunk: { choices: [{ index: 0, delta: { role: "assistant", ...delta }, finishReason: null }] },
});

const callChunk = (name: string, args: string) =>
  chunk({ toolCalls: [{ index: 1, id: "call_1", type: "function", function: { name, arguments: args } }] });

const error = (message: string) => ({ type: "generation-error", error: message });

test("text and refusals become chunks; what core has no place for is left out", async () => {
  const frames = await translate([
    { type: "thread-load-start" },
    { type: "thread-load-success" },
    CREATED,
    { type: "response.reasoning.delta", outputIndex: 1, delta: "Hm." },
    textDelta(""),
    textDelta("Hi"),
    { type: "antiphon:heartbeat" },
    { type: "response.refusal.delta", outputIndex: 0, delta: "No." },
    { type: "response.output_text.done", outputIndex: 0, text: "Hi" },
    COMPLETED,
    { type: "thread-save-start" },
    { type: "thread-save-success", threadId: "thread_1" },
  ]);
  assert.deepEqual(frames, [
    { type: "thread-load-start" },
    { type: "thread-load-success" },
    START,
    chunk({ content: "Hi" }),
    chunk({ content: "No." }),
    FINISH,
    { type: "thread-save-start" },
    { type: "thread-save-success", threadId: "thread_1" },
  ]);
});

test("a call is passed on once it is complete", async () => {
  const sent = [...callFrames("weather", '{"ci', 'ty":1}'), callDone('{"city":1}')];
  const frames = await translate([CREATED, ...sent, COMPLETED]);
  assert.deepEqual(frames, [START, callChunk("weather", '{"city":1}'), FINISH]);
});

test("a call that the token limit cut is left out, and the text before it stays", async () => {
  const frames = await translate([CREATED, textDelta("Hi"), ...callFrames("weather", '{"ci'), INCOMPLETE]);
  assert.deepEqual(frames, [START, chunk({ content: "Hi" }), FINISH]);
});

test("an incomplete answer without any output is an error", async () => {
  const frames = await translate([CREATED, ...callFrames("weather", '{"ci'), INCOMPLETE]);
  assert.deepEqual(frames, [START, error("The answer is incomplete: max_output_tokens.")]);
});

test("emulated structured output is passed on as it arrives", async () => {
  const sent = [...callFrames("output", '{"a', '":1}'), callDone('{"a":1}')];
  const frames = await translate([CREATED, ...sent, COMPLETED], EMULATED);
  assert.deepEqual(frames, [
    START,
    callChunk("output", ""),
    callChunk("output", '{"a'),
    callChunk("output", '":1}'),
    FINISH,
  ]);
});

test("emulated structured output that the token limit cut is an error", async () => {
  const frames = await translate([CREATED, ...callFrames("output", '{"a'), INCOMPLETE], EMULATED);
  assert.deepEqual(frames.at(-1), error("The answer is incomplete: max_output_tokens."));
});

for (const [name, last, message] of [
  ["error", { type: "error", error: { type: "oops", message: "Bad." } }, "Bad."],
  ["error without a message", { type: "error", error: {} }, "Something went wrong."],
  ["response.failed", { type: "response.failed", response: { error: { message: "Filtered." } } }, "Filtered."],
  ["response.failed without an error", { type: "response.failed", response: { error: null } }, "Response failed."],
] as const) {
  test(`nothing follows ${name}`, async () => {
    const frames = await translate([CREATED, textDelta("Hi"), last, textDelta("!"), COMPLETED]);
    assert.deepEqual(frames, [START, chunk({ content: "Hi" }), error(message)]);
  });
}

for (const [name, sent, type] of [
  ["an answer", [CREATED, textDelta("Hi")], "generation-error"],
  ["an empty stream", [], "generation-error"],
  ["loading a thread", [{ type: "thread-load-start" }], "thread-load-failure"],
  ["an answer to a thread", [{ type: "thread-load-start" }, { type: "thread-load-success" }], "generation-error"],
  ["saving a thread", [CREATED, textDelta("Hi"), COMPLETED, { type: "thread-save-start" }], "thread-save-failure"],
] as const) {
  test(`a stream that ends early is reported: ${name}`, async () => {
    const frames = await translate([...sent]);
    assert.deepEqual(frames.at(-1), { type, error: "The answer broke off." });
  });
}

test("a loaded thread is the last frame", async () => {
  const loaded = { type: "thread-load-success", thread: [{ role: "user", content: "Hi" }] };
  const frames = await translate([{ type: "thread-load-start" }, loaded], { operation: "load-thread" });
  assert.deepEqual(frames, [{ type: "thread-load-start" }, loaded]);
});

test("onFrame receives every frame and the request", async () => {
  const reasoning = { type: "response.reasoning.delta", outputIndex: 1, delta: "Hm." };
  const sent = [CREATED, reasoning, textDelta("Hi"), INCOMPLETE];
  const received: [AntiphonFrame, string][] = [];
  await translate(sent, { model: "m" }, { onFrame: (frame, params) => received.push([frame, params.model as string]) });
  assert.deepEqual(received, sent.map((frame) => [frame, "m"]));
});

test("an error of onFrame is logged and does not end the answer", async (context) => {
  const broken = new Error("broken");
  const log = context.mock.method(console, "error", () => {});
  const onFrame = (frame: AntiphonFrame) => {
    if (frame.type === "response.created") throw broken;
  };
  const frames = await translate([CREATED, textDelta("Hi"), COMPLETED], {}, { onFrame });
  assert.deepEqual(frames, [START, chunk({ content: "Hi" }), FINISH]);
  assert.deepEqual(log.mock.calls.map((call) => call.arguments), [[broken]]);
});

test("an HTTP error is core's TransportError, which is not retried", async () => {
  const baseUrl = await serve((response) => response.writeHead(401).end("No key."));
  await assert.rejects(new AntiphonTransport({ baseUrl }).send(makeRequest()), (thrown: unknown) => {
    assert(thrown instanceof TransportError);
    assert.equal(thrown.message, "Unauthorized (401): No key.");
    assert.equal(thrown.retryable, false);
    return true;
  });
});

test("an HTTP answer without a body is an error", async () => {
  const baseUrl = await serve((response) => response.writeHead(204).end());
  await assert.rejects(new AntiphonTransport({ baseUrl }).send(makeRequest()), TransportError);
});

for (const way of ["the user stops the answer", "core needs no more of it"]) {
  test(`the connection is closed when ${way}`, async () => {
    let closed: Promise<unknown> | undefined;
    const baseUrl = await serve((response) => {
      closed = once(response, "close");
      response.write(encode(CREATED, textDelta("Hi")));
    });
    const stop = new AbortController();
    const answer = await new AntiphonTransport({ baseUrl }).send(makeRequest({}, stop.signal));
    const first = await answer.frames?.next();
    assert.deepEqual(first?.value, START);
    if (way === "the user stops the answer") stop.abort();
    else await answer.dispose?.();
    await closed;
    const rest = await collect(answer);
    assert(rest.every((frame) => frame.type === "generation-chunk"), JSON.stringify(rest));
  });
}

test("an answer that was stopped before it began is empty", async () => {
  const stop = new AbortController();
  const baseUrl = await serve(() => stop.abort());
  const answer = await new AntiphonTransport({ baseUrl }).send(makeRequest({}, stop.signal));
  assert.deepEqual(await collect(answer), []);
});
