/** A server on a real socket that plays the frames of a test. */

import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after } from "node:test";
import type { Chat, Frame, TransportRequest } from "@hashbrownai/core";
import { AntiphonTransport, type AntiphonTransportOptions } from "../src/index.ts";

export type Params = Chat.Api.CompletionCreateParams;

/** Encode frames: each is its length in four bytes, big-endian, and JSON. */
export function encode(...frames: object[]): Buffer {
  const pieces = frames.flatMap((frame) => {
    const payload = Buffer.from(JSON.stringify(frame));
    const length = Buffer.alloc(4);
    length.writeUInt32BE(payload.length);
    return [length, payload];
  });
  return Buffer.concat(pieces);
}

/** Serve answers until the test file ends; return the address. */
export async function serve(answer: (response: ServerResponse) => void): Promise<string> {
  const server = createServer((request, response) => {
    request.resume().on("end", () => answer(response));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/hashbrown/chat`;
}

/** Make the request that core makes. */
export function makeRequest(params: Partial<Params> = {}, signal = new AbortController().signal): TransportRequest {
  const all: Params = { operation: "generate", model: "demo", system: "", messages: [], tools: [], ...params };
  return { params: all, signal, attempt: 1, maxAttempts: 1, requestId: "1" };
}

/** Return the frames that core gets for the frames of a server. */
export async function translate(
  frames: object[],
  params: Partial<Params> = {},
  options: Partial<AntiphonTransportOptions> = {},
): Promise<Frame[]> {
  const baseUrl = await serve((response) => response.end(encode(...frames)));
  return collect(await new AntiphonTransport({ baseUrl, ...options }).send(makeRequest(params)));
}

/** Read an answer to its end. */
export async function collect(answer: { frames?: AsyncGenerator<Frame> }): Promise<Frame[]> {
  const frames: Frame[] = [];
  for await (const frame of answer.frames ?? []) frames.push(frame);
  return frames;
}
