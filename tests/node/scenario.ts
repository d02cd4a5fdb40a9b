/**
 * What both pages of the browser tests have in common: the scenario in the page's address, the transport, and the
 * schemas of tools and structured output. Both show their state with the same ids.
 */

import { AntiphonTransport } from "@antiphon/hashbrown";
import { s } from "@hashbrownai/core";

/** What a test asks of the page. */
export interface Scenario {
  url: string;
  model: string;
  structured?: boolean;
  emulated?: boolean;
  tools?: boolean;
}

const address = new URL(location.href);
export const scenario: Scenario = JSON.parse(address.searchParams.get("scenario") ?? "{}");
export const threadId = address.searchParams.get("thread") ?? undefined;

/** What the page cannot know from Hashbrown's core: the types of all frames, and how an answer ended. */
const frames: string[] = [];
const notes: string[] = [];
Object.assign(window, { frames, notes });

export const transport = new AntiphonTransport({
  baseUrl: scenario.url,
  onFrame(frame) {
    frames.push(frame.type);
    if (frame.type === "response.incomplete") notes.push(`incomplete: ${frame.response.incomplete_details?.reason}`);
    if (frame.type === "thread-save-success") {
      address.searchParams.set("thread", frame.threadId);
      history.replaceState(null, "", address);
    }
  },
});

export const PLACE = s.object("a place", { city: s.string("its name") });
export const COLOR = s.object("a color", { color: s.string("its name") });

/** The tools change the page: the test looks there. */
export async function paint({ color }: { color: string }): Promise<string> {
  document.body.dataset.color = color;
  return `painted ${color}`;
}

export async function locate({ city }: { city: string }): Promise<string> {
  document.body.dataset.city = city;
  return `located ${city}`;
}

export interface Message {
  role: string;
  content?: unknown;
  toolCalls?: { name: string; status: string }[];
}

/** Return what a message shows. */
export function show({ content, toolCalls = [] }: Message): string {
  const text = typeof content === "string" ? content : content ? JSON.stringify(content) : "";
  return [text, ...toolCalls.map((call) => `[${call.name}: ${call.status}]`)].filter(Boolean).join(" ");
}

const PHASES = ["Sending", "Receiving", "Generating", "RunningToolCalls", "LoadingThread", "SavingThread"];
const STATES = ["isLoading", ...PHASES.map((phase) => `is${phase}`)];
const ERRORS = ["sendingError", "generatingError", "threadLoadError", "threadSaveError"];

/** Return the names of the states that are set. */
export const busy = (read: (name: string) => unknown) => STATES.filter(read).join(" ") || "idle";

/** Return the errors that are set, each with its name. */
export function errors(read: (name: string) => unknown): string {
  const found = ERRORS.flatMap((name) => {
    const error = read(name) as { message?: string; error?: string } | undefined;
    return error ? [`${name}: ${error.message ?? error.error}`] : [];
  });
  return found.join("\n");
}
