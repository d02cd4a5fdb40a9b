/** The transport of Hashbrown's core that connects it to `POST /hashbrown/chat` of an Antiphon server. */

import {
  type Chat,
  createHttpTransport,
  decodeFrames,
  type Frame,
  type HttpTransportOptions,
  type Transport,
  type TransportRequest,
  type TransportResponse,
} from "@hashbrownai/core";
import type { AntiphonFrame } from "./frames.ts";
import { FrameTranslator } from "./translator.ts";

export interface AntiphonTransportOptions extends HttpTransportOptions {
  /**
   * Receives each frame of the server before core does, and the request that it answers.
   *
   * For what core cannot show: that an answer is incomplete, reasoning, citations, usage, the id of a new thread.
   */
  onFrame?: (frame: AntiphonFrame, params: Chat.Api.CompletionCreateParams) => void;
}

/**
 * A transport for `HashbrownProvider`, `provideHashbrown`, hooks, resources and `fryHashbrown`.
 *
 * Create it once: with another transport, a chat begins anew.
 */
export class AntiphonTransport implements Transport {
  readonly name = "AntiphonTransport";
  readonly #http: Transport;
  readonly #onFrame: AntiphonTransportOptions["onFrame"];

  constructor({ onFrame, ...options }: AntiphonTransportOptions) {
    this.#http = createHttpTransport(options);
    this.#onFrame = onFrame;
  }

  /** Send a request. An HTTP error is thrown as core's own transport throws it. */
  async send(request: TransportRequest): Promise<TransportResponse> {
    // Core does not always read to the end.
    const disposal = new AbortController();
    const signal = AbortSignal.any([request.signal, disposal.signal]);
    const dispose = () => disposal.abort();
    try {
      const { stream, metadata } = await this.#http.send({ ...request, signal });
      // An answer without a body is an error of core's HttpTransport.
      const frames = this.#translate(stream!, request.params, signal);
      return { frames, dispose, ...(metadata && { metadata }) };
    } catch (error) {
      dispose();
      if (!request.signal.aborted) throw error;
      // The user has stopped the answer: that is no error, and no reason to try again.
      return { frames: noFrames() };
    }
  }

  /** Yield the frames for core. A stream that ends early is an error: core would wait for ever. */
  async *#translate(
    stream: ReadableStream<Uint8Array>,
    params: Chat.Api.CompletionCreateParams,
    signal: AbortSignal,
  ): AsyncGenerator<Frame> {
    const translator = new FrameTranslator(params);
    let message = "The answer broke off.";
    try {
      for await (const received of decodeFrames(stream, { signal })) {
        const frame = received as AntiphonFrame;
        this.#notify(frame, params);
        const translated = translator.translate(frame);
        if (translated) yield translated;
        if (translator.failed) return;
        if (frame.type === "thread-load-success" && params.operation === "load-thread") return;
      }
    } catch (error) {
      message = `The answer broke off: ${error instanceof Error ? error.message : String(error)}`;
    }
    if (!translator.ended && !signal.aborted) yield translator.fail(message);
  }

  #notify(frame: AntiphonFrame, params: Chat.Api.CompletionCreateParams): void {
    try {
      this.#onFrame?.(frame, params);
    } catch (error) {
      // An error of the page's own function does not end the answer.
      console.error(error);
    }
  }
}

async function* noFrames(): AsyncGenerator<Frame> {}
