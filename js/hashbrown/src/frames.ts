/**
 * The frames that `POST /hashbrown/chat` sends: one for each event of a response, and those of threads.
 *
 * Names of a frame's own fields are in camel case. The objects in `response`, `item`, `part` and `annotation` are
 * those of Open Responses and keep its names.
 */

import type {
  ThreadLoadFailureFrame,
  ThreadLoadStartFrame,
  ThreadLoadSuccessFrame,
  ThreadSaveFailureFrame,
  ThreadSaveStartFrame,
  ThreadSaveSuccessFrame,
} from "@hashbrownai/core";

/** Tokens that a response used. */
export interface Usage {
  input_tokens: number;
  output_tokens: number;
  total_tokens: number;
  input_tokens_details: { cached_tokens: number };
  output_tokens_details: { reasoning_tokens: number };
}

/** The error of a response, or of the request. */
export interface ResponseError {
  type?: string;
  code?: string | null;
  message: string;
  param?: string | null;
}

/** A feature that the model's provider does not support, and that was left out. */
export interface Warning {
  code: string;
  message: string;
  param?: string | null;
}

/** A response, as Open Responses describes it; fields that are not listed here are `unknown`. */
export interface ResponseResource {
  id: string;
  model: string;
  status: "queued" | "in_progress" | "completed" | "incomplete" | "failed" | "cancelled";
  output: Item[];
  usage: Usage | null;
  error: ResponseError | null;
  incomplete_details: { reason: string } | null;
  "antiphon:warnings"?: Warning[];
  [field: string]: unknown;
}

/** A message, a call, reasoning or another item of a response. */
export interface Item {
  type: string;
  id: string;
  status?: string;
  call_id?: string;
  name?: string;
  arguments?: string;
  [field: string]: unknown;
}

/** A citation in a text. */
export interface Annotation {
  type: string;
  url?: string;
  title?: string;
  start_index?: number;
  end_index?: number;
  [field: string]: unknown;
}

/** A part of an item's content. */
export interface ContentPart {
  type: string;
  [field: string]: unknown;
}

interface Numbered {
  sequenceNumber: number;
}

interface OfItem extends Numbered {
  outputIndex: number;
  itemId: string;
}

interface OfPart extends OfItem {
  contentIndex: number;
}

interface OfSummary extends OfItem {
  summaryIndex: number;
}

/** The state of the whole response. */
export interface ResponseFrame extends Numbered {
  type:
    | "response.created"
    | "response.queued"
    | "response.in_progress"
    | "response.completed"
    | "response.incomplete"
    | "response.failed";
  response: ResponseResource;
}

/** The beginning or the end of an item. */
export interface OutputItemFrame extends Numbered {
  type: "response.output_item.added" | "response.output_item.done";
  outputIndex: number;
  item: Item;
}

/** The beginning or the end of a part. */
export interface ContentPartFrame extends OfPart {
  type: "response.content_part.added" | "response.content_part.done";
  part: ContentPart;
}

/** A piece of a text, a refusal or reasoning. */
export interface TextDeltaFrame extends OfPart {
  type: "response.output_text.delta" | "response.refusal.delta" | "response.reasoning.delta";
  delta: string;
}

/** A whole text or reasoning. */
export interface TextDoneFrame extends OfPart {
  type: "response.output_text.done" | "response.reasoning.done";
  text: string;
}

/** A whole refusal. */
export interface RefusalDoneFrame extends OfPart {
  type: "response.refusal.done";
  refusal: string;
}

/** A citation. */
export interface AnnotationFrame extends OfPart {
  type: "response.output_text.annotation.added";
  annotationIndex: number;
  annotation: Annotation;
}

/** A piece of a summary of the reasoning. */
export interface SummaryDeltaFrame extends OfSummary {
  type: "response.reasoning_summary_text.delta";
  delta: string;
}

/** A whole summary of the reasoning. */
export interface SummaryDoneFrame extends OfSummary {
  type: "response.reasoning_summary_text.done";
  text: string;
}

/** A piece of a call's arguments. */
export interface ArgumentsDeltaFrame extends OfItem {
  type: "response.function_call_arguments.delta";
  delta: string;
}

/** A call's whole arguments: only these can be parsed. */
export interface ArgumentsDoneFrame extends OfItem {
  type: "response.function_call_arguments.done";
  arguments: string;
}

/** An error that ended the answer. */
export interface ErrorFrame {
  type: "error";
  sequenceNumber?: number;
  error: ResponseError;
}

/** Shows that the connection is alive; has no meaning. */
export interface HeartbeatFrame {
  type: "antiphon:heartbeat";
}

/** A frame of a thread; Hashbrown's core has the same. */
export type ThreadFrame =
  | ThreadLoadStartFrame
  | ThreadLoadSuccessFrame
  | ThreadLoadFailureFrame
  | ThreadSaveStartFrame
  | ThreadSaveSuccessFrame
  | ThreadSaveFailureFrame;

/** A frame that the server sends. */
export type AntiphonFrame =
  | ResponseFrame
  | OutputItemFrame
  | ContentPartFrame
  | TextDeltaFrame
  | TextDoneFrame
  | RefusalDoneFrame
  | AnnotationFrame
  | SummaryDeltaFrame
  | SummaryDoneFrame
  | ArgumentsDeltaFrame
  | ArgumentsDoneFrame
  | ErrorFrame
  | HeartbeatFrame
  | ThreadFrame;
