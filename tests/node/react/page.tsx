/** A chat with Hashbrown's React client, for the browser tests. */

import { HashbrownProvider, useChat, useStructuredChat, useTool } from "@hashbrownai/react";
import { useState } from "react";
import { createRoot } from "react-dom/client";
import { busy, COLOR, errors, locate, type Message, PLACE, paint, scenario, show, threadId, transport } from "./scenario.ts";

interface Chat {
  messages: Message[];
  sendMessage: (message: { role: "user"; content: string }) => void;
  stop: () => void;
}

function View({ chat }: { chat: Chat }) {
  const [text, setText] = useState("");
  const read = (name: string) => chat[name as keyof Chat];
  return (
    <>
      <ul>
        {chat.messages.map((message, index) => (
          <li key={index} className={message.role}>
            {show(message)}
          </li>
        ))}
      </ul>
      <p id="busy">{busy(read)}</p>
      <pre id="errors">{errors(read)}</pre>
      <input value={text} onChange={(event) => setText(event.target.value)} />
      <button id="send" onClick={() => chat.sendMessage({ role: "user", content: text })}>
        Send
      </button>
      <button id="stop" onClick={() => chat.stop()}>
        Stop
      </button>
    </>
  );
}

function Free() {
  const painting = useTool({ name: "paint", description: "Paints.", schema: COLOR, handler: paint, deps: [] });
  const locating = useTool({ name: "locate", description: "Locates.", schema: PLACE, handler: locate, deps: [] });
  const tools = scenario.tools ? [painting, locating] : [];
  return <View chat={useChat({ model: scenario.model, system: "", tools, threadId, debounceTime: 0 })} />;
}

function Structured() {
  const chat = useStructuredChat({ model: scenario.model, system: "", schema: PLACE, threadId, debounceTime: 0 });
  return <View chat={chat} />;
}

createRoot(document.getElementById("page")!).render(
  <HashbrownProvider transport={transport} emulateStructuredOutput={scenario.emulated ?? false}>
    {scenario.structured ? <Structured /> : <Free />}
  </HashbrownProvider>,
);
