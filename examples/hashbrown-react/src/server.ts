/** Everything that the page asks its server: answers, the list of threads, the list of models. */

import { type AntiphonFrame, AntiphonTransport } from "@antiphon/hashbrown";
import { useEffect, useEffectEvent } from "react";

const listeners = new Set<(frame: AntiphonFrame) => void>();

/** One transport for the whole page: with another one, a chat begins anew. */
export const transport = new AntiphonTransport({
  baseUrl: "/hashbrown/chat",
  onFrame: (frame) => listeners.forEach((listener) => listener(frame)),
});

/** Call a function for each frame that the server sends. */
export function useFrames(listener: (frame: AntiphonFrame) => void): void {
  const onFrame = useEffectEvent(listener);
  useEffect(() => {
    const listen = (frame: AntiphonFrame) => onFrame(frame);
    listeners.add(listen);
    return () => void listeners.delete(listen);
  }, []);
}

export interface Thread {
  id: string;
  title: string;
  updated_at: number;
}

export async function listThreads(): Promise<Thread[]> {
  return (await request<{ data: Thread[] }>("GET", "/hashbrown/threads?limit=100")).data;
}

export async function renameThread(id: string, title: string): Promise<void> {
  await request("POST", `/hashbrown/threads/${id}`, { title });
}

export async function deleteThread(id: string): Promise<void> {
  await request("DELETE", `/hashbrown/threads/${id}`);
}

export async function listModels(): Promise<string[]> {
  return (await request<{ data: { id: string }[] }>("GET", "/v1/models")).data.map((model) => model.id);
}

async function request<Result>(method: string, path: string, body?: object): Promise<Result> {
  const headers = body && { "Content-Type": "application/json" };
  const response = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error?.message ?? response.statusText);
  return answer;
}
