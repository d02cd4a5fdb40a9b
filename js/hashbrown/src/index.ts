/** Connects Hashbrown's clients to an Antiphon server. */

export type * from "./frames.ts";
export { AntiphonTransport, type AntiphonTransportOptions } from "./transport.ts";
