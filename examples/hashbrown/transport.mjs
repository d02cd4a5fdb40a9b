/**
 * How a page with Hashbrown's published core talks to `POST /hashbrown/chat`.
 *
 * The door sends the frames of Hashbrown's design for Open Responses; what is published (0.5.0-beta.4)
 * reads an older kind. This transport asks as core's own does, and tells core each frame in the words
 * it knows:
 *
 *     response.created                        generation-start
 *     words, refusals, calls                  generation-chunk
 *     response.completed, .incomplete         generation-finish
 *     error, response.failed                  generation-error, and nothing after it
 *     thread-*                                itself
 *     anything else                           nothing: core has no place for it
 *
 * Core waits for ever if a stream ends and its last word was not said. So it is said here: a stream
 * that breaks off, or just stops, is an error of whatever was under way.
 *
 *     import { AntiphonTransport } from "./transport.mjs";
 *     const transport = new AntiphonTransport({ baseUrl: "/hashbrown/chat" });
 */

import { createHttpTransport, decodeFrames } from "@hashbrownai/core";

const ANSWERING = "generation-error";
const LOADING = "thread-load-failure";
const SAVING = "thread-save-failure";

/**
 * What is under way after a frame, called as it is told to have failed; null if all is said.
 * A frame that is not here changes nothing.
 */
const UNDER_WAY = {
  "thread-load-start": LOADING,
  "thread-load-success": ANSWERING,
  "thread-load-failure": null,
  "response.completed": null,
  "response.incomplete": null,
  "thread-save-start": SAVING,
  "thread-save-success": null,
  "thread-save-failure": null,
};

/** What core is told of a frame that is neither a thread's nor an error. */
const IN_CORES_WORDS = {
  "response.created": () => ({ type: "generation-start" }),
  "response.output_text.delta": ({ delta }) => words(delta),
  "response.refusal.delta": ({ delta }) => words(delta),
  "response.output_item.added": ({ outputIndex, item }) =>
    item.type === "function_call"
      ? call(outputIndex, { id: item.call_id, type: "function" }, { name: item.name, arguments: "" })
      : undefined,
  "response.function_call_arguments.delta": ({ outputIndex, delta }) =>
    call(outputIndex, {}, { arguments: delta }),
  "response.completed": () => ({ type: "generation-finish" }),
  "response.incomplete": () => ({ type: "generation-finish" }),
};

/** Speaks to the door; takes what core's own `HttpTransport` takes: `baseUrl`, `middleware`, `fetchImpl`. */
export class AntiphonTransport {
  name = "AntiphonTransport";
  #http;

  /** @param {import("@hashbrownai/core").HttpTransportOptions} options */
  constructor(options) {
    this.#http = createHttpTransport(options);
  }

  /**
   * Ask. An error of HTTP is thrown, as core's own transport throws it.
   *
   * @param {import("@hashbrownai/core").TransportRequest} request
   * @returns {Promise<import("@hashbrownai/core").TransportResponse>}
   */
  async send(request) {
    const enough = new AbortController(); // core does not always read to the end
    const signal = AbortSignal.any([request.signal, enough.signal]);
    const dispose = () => enough.abort();
    try {
      const { stream, metadata } = await this.#http.send({ ...request, signal });
      const frames = translated(decodeFrames(stream, { signal }), request.params.operation, signal);
      return { frames, metadata, dispose };
    } catch (error) {
      if (!request.signal.aborted) throw error;
      return { frames: nothing() }; // whoever stopped it need not be told, nor should core try again
    }
  }
}

/** Tell core what the door says; last of all, how it ended. */
async function* translated(frames, operation, signal) {
  let underWay = ANSWERING;
  let why = "The answer broke off.";
  try {
    for await (const frame of frames) {
      const failure = failureIn(frame);
      if (failure) {
        yield { type: underWay ?? ANSWERING, error: failure };
        return;
      }
      if (frame.type in UNDER_WAY) underWay = UNDER_WAY[frame.type];
      const told = frame.type.startsWith("thread-") ? frame : IN_CORES_WORDS[frame.type]?.(frame);
      if (told) yield told;
      if (frame.type === "thread-load-success" && operation === "load-thread") return;
    }
  } catch (error) {
    why = `The answer broke off: ${error.message}`;
  }
  if (underWay && !signal.aborted) yield { type: underWay, error: why };
}

/** Return the words of a frame that is an error. */
function failureIn(frame) {
  if (frame.type === "error") return frame.error?.message || "Something went wrong.";
  if (frame.type === "response.failed") return frame.response?.error?.message || "Response failed.";
  return undefined;
}

/** Core takes an empty chunk for an answer; so that nothing is not one, it is not told. */
function words(content) {
  return content ? chunk({ content }) : undefined;
}

/** Core puts together what has the same index, and numbers calls anew when it sends them back. */
function call(index, more, named) {
  return chunk({ toolCalls: [{ index, ...more, function: named }] });
}

/** The first chunk has to have the role; the others may. */
function chunk(delta) {
  const choice = { index: 0, delta: { role: "assistant", ...delta }, finishReason: null };
  return { type: "generation-chunk", chunk: { choices: [choice] } };
}

async function* nothing() {}
