import { useEffect, useState } from "react";
import { Chat } from "./chat";
import { deleteThread, listModels, listThreads, renameThread, type Thread, useFrames } from "./server";

export function App() {
  const [threads, setThreads] = useState<Thread[]>([]);
  const [models, setModels] = useState(["guide"]);
  const [model, setModel] = useState("guide");
  const [accent, setAccent] = useState("#2456c8");
  const [error, setError] = useState("");
  const [sidebar, setSidebar] = useState(false);
  // `threadId` is the thread that is shown; the chat is another one when `chatKey` changes.
  const [threadId, setThreadId] = useState(() => location.hash.slice(1) || undefined);
  const [chatKey, setChatKey] = useState(0);
  const [loadedId, setLoadedId] = useState(threadId);

  const attempt = (action: Promise<void>) =>
    action.then(
      () => setError(""),
      (reason: Error) => setError(reason.message),
    );
  const refresh = () => attempt(listThreads().then(setThreads));

  useEffect(() => {
    refresh();
    attempt(listModels().then(setModels));
  }, []);

  useFrames((frame) => {
    if (frame.type !== "thread-save-success") return;
    setThreadId(frame.threadId);
    history.replaceState(null, "", `#${frame.threadId}`);
    refresh();
  });

  function open(id: string | undefined) {
    setThreadId(id);
    setLoadedId(id);
    setChatKey(chatKey + 1);
    setSidebar(false);
    history.replaceState(null, "", id ? `#${id}` : location.pathname);
  }

  async function rename(thread: Thread) {
    const title = prompt("Title of the chat", thread.title)?.trim();
    if (title) await attempt(renameThread(thread.id, title).then(refresh));
  }

  async function remove(thread: Thread) {
    await attempt(deleteThread(thread.id).then(refresh));
    if (thread.id === threadId) open(undefined);
  }

  return (
    <div className="app" style={{ "--accent": accent } as React.CSSProperties}>
      <aside className={sidebar ? "open" : ""}>
        <button className="new" onClick={() => open(undefined)}>
          New chat
        </button>
        <nav aria-label="Chats">
          {threads.map((thread) => (
            <div key={thread.id} className={thread.id === threadId ? "thread current" : "thread"}>
              <button className="title" onClick={() => open(thread.id)}>
                {thread.title}
              </button>
              <button aria-label={`Rename ${thread.title}`} title="Rename" onClick={() => rename(thread)}>
                ✎
              </button>
              <button aria-label={`Delete ${thread.title}`} title="Delete" onClick={() => remove(thread)}>
                ✕
              </button>
            </div>
          ))}
          {threads.length === 0 && <p className="hint">Your chats appear here.</p>}
        </nav>
      </aside>
      <main>
        <header>
          <button className="menu" aria-label="Chats" aria-expanded={sidebar} onClick={() => setSidebar(!sidebar)}>
            ☰
          </button>
          <h1>City guide</h1>
          <select aria-label="Model" value={model} onChange={(event) => setModel(event.target.value)}>
            {models.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </header>
        {error && <p className="notice error" role="alert">{error}</p>}
        <Chat key={chatKey} model={model} threadId={loadedId} onAccent={setAccent} />
      </main>
    </div>
  );
}
