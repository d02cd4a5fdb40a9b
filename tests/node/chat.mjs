// A page without a screen: Hashbrown's own chat, over our transport. Reads from stdin what to do in
// one chat after another, and writes what each user saw. Nothing waits longer than WAIT.

import { fryHashbrown, s } from "@hashbrownai/core";
import { AntiphonTransport } from "./hashbrown/index.ts";

const WAIT = 20_000;
const STATES = ["isLoading", "isSending", "isGenerating", "isLoadingThread", "isSavingThread"];

const CITY = s.object("a place", { city: s.string("its name") });

/** The transport, what it was asked and told, and what of it is not over: core's states do not tell. */
class Watched {
  name = "Watched";
  requests = [];
  frames = [];
  signals = [];
  open = 0;
  asked = () => {};
  changed = () => {};

  constructor(options) {
    const fetchImpl = (url, init) => {
      this.signals.push(init.signal);
      return fetch(url, init);
    };
    this.transport = new AntiphonTransport({ ...options, fetchImpl });
  }

  async send(request) {
    this.requests.push(request.params);
    this.open += 1;
    this.asked();
    try {
      const answer = await this.transport.send(request);
      const dispose = () => this.over(answer.dispose);
      return { ...answer, frames: this.noted(answer.frames), dispose };
    } catch (error) {
      this.over();
      throw error;
    }
  }

  async *noted(frames) {
    for await (const frame of frames) {
      this.frames.push(frame.type);
      yield frame;
    }
  }

  over(dispose) {
    dispose?.();
    this.open -= 1;
    this.changed();
  }
}

/** Do what a user does: in a turn of its own. */
const click = (what) => setTimeout(what);

function weather(ran) {
  return {
    name: "weather",
    description: "Tells the weather.",
    schema: CITY,
    handler: async (input) => {
      ran.push(input);
      return "sunny";
    },
  };
}

/**
 * Do one chat: say each thing when the one before is answered. `stop` is the text at which the user
 * stops it; if it is empty, at once.
 */
async function chatted({ url, model, say = [], tools = [], structured, stop, key, ...more }) {
  const bearing = (init) => ({ ...init, headers: { ...init.headers, Authorization: `Bearer ${key}` } });
  const middleware = key ? [bearing] : [];
  const transport = new Watched({ baseUrl: url, middleware });
  const ran = [];
  const grown = [];
  const offered = tools.includes("weather") ? [weather(ran)] : [];
  const init = { model, system: "", tools: offered, transport, debounce: 0, ...more };
  const chat = fryHashbrown(structured ? { ...init, responseSchema: CITY } : init);

  let check = () => {};
  const settled = () => transport.requests.length > 0 && !transport.open && !chat.isLoading();
  const listen = () => setImmediate(() => check()); // core may have something to add, such as a retry
  chat.isLoading.subscribe(listen);
  transport.changed = listen;
  chat.lastAssistantMessage.subscribe((message) => {
    const text = message?.content;
    if (text && text !== grown.at(-1)) grown.push(text);
    if (stop && text === stop && chat.isGenerating()) click(() => chat.stop());
  });
  const until = (met, what) =>
    new Promise((resolve) => {
      const late = setTimeout(() => resolve(`not ${what} in time`), WAIT);
      check = () => met() && (clearTimeout(late), resolve(null));
      check();
    });

  const end = chat.sizzle();
  let stuck = more.threadId ? await until(settled, "loaded") : null;
  await null; // core begins to listen in the next microtask
  if (stop === "") transport.asked = () => click(() => chat.stop());
  for (const content of say) {
    if (stuck) break;
    chat.sendMessage({ role: "user", content });
    stuck = await until(settled, `answered: ${content}`);
  }
  const words = (name) => chat[name]()?.message ?? chat[name]()?.error ?? null;
  const told = {
    stuck,
    ran,
    grown,
    requests: transport.requests,
    frames: transport.frames,
    held: transport.signals.filter((signal) => !signal.aborted).length,
    messages: chat.messages(),
    threadId: chat.threadId() ?? null,
    error: words("error"),
    sendingError: words("sendingError"),
    generatingError: words("generatingError"),
    threadLoadError: words("threadLoadError"),
    threadSaveError: words("threadSaveError"),
    busy: STATES.filter((state) => chat[state]()),
  };
  end();
  return told;
}

const told = [];
for (const task of JSON.parse(await new Response(process.stdin).text())) {
  told.push(await chatted(task));
}
console.log(JSON.stringify(told));
