import { s } from "@hashbrownai/core";
import { useTool, useUiChat } from "@hashbrownai/react";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { components } from "./components";
import { useFrames } from "./server";

const SYSTEM = `You are a city guide. Answer with a short text and up to three places.
If the user wants another color, call the tool paintPage, then say that you did.`;
const SUGGESTIONS = ["What should I see in Oslo?", "Two days in Lisbon", "Paint the page green"];

interface ChatProps {
  model: string;
  threadId: string | undefined;
  onAccent: (color: string) => void;
}

export function Chat({ model, threadId, onAccent }: ChatProps) {
  const [text, setText] = useState("");
  const [reasoning, setReasoning] = useState("");
  const [notice, setNotice] = useState("");
  const end = useRef<HTMLDivElement>(null);

  const paintPage = useTool({
    name: "paintPage",
    description: "Changes the color of the page.",
    schema: s.object("The color", { color: s.string("A CSS color with enough contrast to white") }),
    handler: async ({ color }) => {
      if (!CSS.supports("color", color)) return `'${color}' is no CSS color.`;
      onAccent(color);
      return `The page is ${color} now.`;
    },
    deps: [onAccent],
  });
  const chat = useUiChat({ model, system: SYSTEM, components, tools: [paintPage], threadId });

  // What Hashbrown's core has no place for.
  useFrames((frame) => {
    if (frame.type === "response.reasoning.delta") setReasoning((before) => before + frame.delta);
    if (frame.type === "response.incomplete") setNotice("The answer was cut off: the model reached its limit.");
  });

  useEffect(() => {
    end.current?.scrollIntoView({ block: "end" });
  }, [chat.messages]);

  function send(content: string) {
    setText("");
    setNotice("");
    setReasoning("");
    chat.sendMessage({ role: "user", content });
  }

  function submit(event: FormEvent) {
    event.preventDefault();
    if (text.trim() && !chat.isLoading) send(text.trim());
  }

  return (
    <>
      <section className="messages" aria-live="polite">
        {chat.messages.length === 0 && !chat.isLoadingThread && (
          <div className="welcome">
            <p>Where do you want to go?</p>
            {SUGGESTIONS.map((suggestion) => (
              <button key={suggestion} onClick={() => send(suggestion)}>
                {suggestion}
              </button>
            ))}
          </div>
        )}
        {chat.messages.map((message, index) => (
          <div key={index} className={`message ${message.role}`}>
            {message.role === "assistant" ? (
              <>
                {message.toolCalls?.map((call) => (
                  <p key={call.toolCallId} className="call">
                    {call.status === "done" ? "✓" : "…"} {call.name}
                  </p>
                ))}
                {message.ui}
              </>
            ) : (
              String(message.content)
            )}
          </div>
        ))}
        {reasoning && (
          <details>
            <summary>Reasoning</summary>
            {reasoning}
          </details>
        )}
        {chat.isLoading && <p className="busy">{chat.isLoadingThread ? "Loading" : "Thinking"}</p>}
        {notice && <p className="notice">{notice}</p>}
        {chat.threadSaveError && (
          <p className="notice error">This chat could not be saved: {chat.threadSaveError.error}</p>
        )}
        <div ref={end} />
      </section>
      <form onSubmit={submit}>
        <input
          aria-label="Message"
          placeholder="Ask about a city"
          value={text}
          onChange={(event) => setText(event.target.value)}
          autoFocus
        />
        {chat.isLoading ? (
          <button type="button" onClick={() => chat.stop()}>
            Stop
          </button>
        ) : (
          <button disabled={!text.trim()}>Send</button>
        )}
      </form>
    </>
  );
}
