/** A chat with Hashbrown's Angular client, for the browser tests. */

import "@angular/compiler";
import { Component, provideZonelessChangeDetection, type Signal, signal } from "@angular/core";
import { bootstrapApplication } from "@angular/platform-browser";
import { chatResource, createTool, provideHashbrown, structuredChatResource } from "@hashbrownai/angular";
import { busy, COLOR, errors, locate, PLACE, paint, scenario, show, threadId, transport } from "./scenario.ts";

@Component({
  selector: "#page",
  template: `
    <ul>
      @for (message of chat.value(); track $index) {
        <li [class]="message.role">{{ show(message) }}</li>
      }
    </ul>
    <p id="busy">{{ busy() }}</p>
    <pre id="errors">{{ errors() }}</pre>
    <input #text />
    <button id="send" (click)="chat.sendMessage({ role: 'user', content: text.value })">Send</button>
    <button id="stop" (click)="chat.stop()">Stop</button>
  `,
})
class Page {
  chat = scenario.structured ? structuredChat() : freeChat();
  show = show;
  busy = () => busy((name) => this.read(name));
  errors = () => errors((name) => this.read(name));

  private read(name: string): unknown {
    return (this.chat[name as keyof typeof this.chat] as Signal<unknown>)();
  }
}

function freeChat() {
  const painting = createTool({ name: "paint", description: "Paints.", schema: COLOR, handler: paint });
  const locating = createTool({ name: "locate", description: "Locates.", schema: PLACE, handler: locate });
  const tools = scenario.tools ? [painting, locating] : [];
  return chatResource({ model: scenario.model, system: "", tools, threadId: signal(threadId), debounce: 0 });
}

function structuredChat() {
  const options = { model: scenario.model, system: "", schema: PLACE, debounce: 0 };
  return structuredChatResource({ ...options, threadId: signal(threadId) });
}

const hashbrown = provideHashbrown({
  baseUrl: scenario.url,
  transport,
  emulateStructuredOutput: scenario.emulated ?? false,
});
bootstrapApplication(Page, { providers: [provideZonelessChangeDetection(), hashbrown] }).catch(console.error);
