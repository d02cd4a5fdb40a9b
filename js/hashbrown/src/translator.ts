/**
 * Translates the server's frames to those that Hashbrown's core supports.
 *
 *     response.created                   generation-start
 *     text, refusals, whole calls        generation-chunk
 *     response.completed, .incomplete    generation-finish
 *     error, response.failed             generation-error, and nothing after it
 *     thread-*                           the same
 *     anything else                      nothing: core has no place for it
 *
 * A call is passed on when it is complete. Core fails the whole answer, text included, if a call's arguments are not
 * JSON, and those of a call that the token limit cut are not.
 */

import type { Chat, Frame, GenerationChunkFrame } from "@hashbrownai/core";
import type { AntiphonFrame, Item, ResponseResource } from "./frames.ts";

type Params = Chat.Api.CompletionCreateParams;
type Delta = GenerationChunkFrame["chunk"]["choices"][number]["delta"];
type FailureType = "generation-error" | "thread-load-failure" | "thread-save-failure";

/** The tool that core adds to a request if structured output is emulated. Its arguments are shown as they arrive. */
const EMULATED_OUTPUT = "output";

/** Translates the frames of one answer, in order. */
export class FrameTranslator {
  /** Whether the answer failed: nothing may follow. */
  failed = false;
  #operation: Params["operation"];
  #isEmulated: boolean;
  #failure: FailureType | null = "generation-error";
  #openCalls = new Map<number, Item>();
  #hasOutput = false;

  constructor(params: Params) {
    this.#operation = params.operation;
    this.#isEmulated = params.toolChoice === "required" && !params.responseFormat;
  }

  /** Whether core needs no more frames. */
  get ended(): boolean {
    return this.failed || this.#failure === null;
  }

  /** Return the frame for core, if it has one. */
  translate(frame: AntiphonFrame): Frame | undefined {
    switch (frame.type) {
      case "error":
        return this.fail(frame.error?.message || "Something went wrong.");
      case "response.failed":
        return this.fail(frame.response?.error?.message || "Response failed.");
      case "response.created":
        return { type: "generation-start" };
      case "response.output_text.delta":
      case "response.refusal.delta":
        return this.#text(frame.delta);
      case "response.output_item.added":
        return this.#openCall(frame.outputIndex, frame.item);
      case "response.function_call_arguments.delta":
        return this.#callDelta(frame.outputIndex, frame.delta);
      case "response.function_call_arguments.done":
        return this.#callDone(frame.outputIndex, frame.arguments);
      case "response.completed":
      case "response.incomplete":
        return this.#finish(frame.response);
      case "thread-load-start":
        this.#failure = "thread-load-failure";
        return frame;
      case "thread-load-success":
        this.#failure = this.#operation === "load-thread" ? null : "generation-error";
        return frame;
      case "thread-save-start":
        this.#failure = "thread-save-failure";
        return frame;
      case "thread-load-failure":
      case "thread-save-failure":
      case "thread-save-success":
        this.#failure = null;
        return frame;
      default:
        return undefined;
    }
  }

  /** Return the frame that reports a failure of what is in progress. */
  fail(message: string): Frame {
    this.failed = true;
    return { type: this.#failure ?? "generation-error", error: message };
  }

  #text(content: string): Frame | undefined {
    // Core takes an empty chunk for a message. An answer without text is none.
    return content ? this.#chunk({ content }) : undefined;
  }

  #openCall(index: number, item: Item): Frame | undefined {
    if (item.type !== "function_call") return undefined;
    this.#openCalls.set(index, item);
    return this.#streams(item) ? this.#call(index, item, "") : undefined;
  }

  #callDelta(index: number, delta: string): Frame | undefined {
    const item = this.#openCalls.get(index);
    return item && this.#streams(item) ? this.#call(index, item, delta) : undefined;
  }

  #callDone(index: number, args: string): Frame | undefined {
    const item = this.#openCalls.get(index);
    this.#openCalls.delete(index);
    return item && !this.#streams(item) ? this.#call(index, item, args) : undefined;
  }

  #streams(item: Item): boolean {
    return this.#isEmulated && item.name === EMULATED_OUTPUT;
  }

  /** Core joins the pieces of what has the same index, and numbers calls anew when it sends them back. */
  #call(index: number, item: Item, args: string): Frame {
    const call = { index, id: item.call_id, type: "function", function: { name: item.name, arguments: args } };
    return this.#chunk({ toolCalls: [call] as NonNullable<Delta["toolCalls"]> });
  }

  #chunk(delta: Delta): Frame {
    this.#hasOutput = true;
    // Core needs the role in the first chunk.
    const choice = { index: 0, delta: { role: "assistant", ...delta }, finishReason: null };
    return { type: "generation-chunk", chunk: { choices: [choice] } };
  }

  #finish(response: ResponseResource | undefined): Frame {
    const reason = response?.incomplete_details?.reason;
    const cutOutput = [...this.#openCalls.values()].some((item) => this.#streams(item));
    if (reason && (cutOutput || !this.#hasOutput)) return this.fail(`The answer is incomplete: ${reason}.`);
    this.#failure = null;
    return { type: "generation-finish" };
  }
}
