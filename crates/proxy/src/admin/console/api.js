// Requests to the admin address, with the token if there is one.

const TOKEN = "docward-token";
const TIMEOUT = 10_000;
/** The stream of decisions sends a keep-alive every 15 seconds. */
const REPLY_TIMEOUT = 40_000;
/** The maximum length of an event in characters; events of docward are shorter. */
const EVENT_LENGTH = 1 << 20;

/** A response with another status than 200. */
export class RequestError extends Error {
  /**
   * @param {number} status
   * @param {any} reply the JSON body; null if the body is not JSON
   */
  constructor(status, reply) {
    super(reply?.error ?? `the admin address replied with status ${status}`);
    this.status = status;
    this.reply = reply;
  }
}

/** Stored until the tab is closed. */
export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (text) => sessionStorage.setItem(TOKEN, text),
  forget: () => sessionStorage.removeItem(TOKEN),
};

/** @returns {Promise<any>} */
export async function ask(path) {
  const response = await send(path, { signal: AbortSignal.timeout(TIMEOUT) });
  return response.json();
}

/** @param {{command: string, database: string, app?: string, user?: string}} question */
export async function explain(question, signal) {
  const headers = { "Content-Type": "application/json" };
  const response = await send("api/explain", { method: "POST", headers, body: JSON.stringify(question), signal });
  return response.json();
}

/** @param {{rule?: string, all?: boolean, dry_run?: boolean, by: string, mode?: string, for?: string, reason?: string}} change */
export async function changeMode(change) {
  const headers = { "Content-Type": "application/json" };
  const signal = AbortSignal.timeout(TIMEOUT);
  const response = await send("api/modes", { method: "POST", headers, body: JSON.stringify(change), signal });
  return response.json();
}

/** @param {number} connection its number in docward's process */
export async function closeConnection(connection) {
  const headers = { "Content-Type": "application/json" };
  const signal = AbortSignal.timeout(TIMEOUT);
  const body = JSON.stringify({ connection, by: "console" });
  const response = await send("api/connections", { method: "POST", headers, body, signal });
  return response.json();
}

/**
 * @param {{for: string, size: string, apps: string[], by: string}} capture
 * @returns {Promise<ReadableStream<Uint8Array>>} the capture, as it is recorded
 */
export async function startCapture(capture) {
  const headers = { "Content-Type": "application/json" };
  const response = await send("api/capture", { method: "POST", headers, body: JSON.stringify(capture) });
  return response.body;
}

export async function endCapture() {
  const headers = { "Content-Type": "application/json" };
  const signal = AbortSignal.timeout(TIMEOUT);
  await send("api/capture/end", { method: "POST", headers, body: JSON.stringify({ by: "console" }), signal });
}

/**
 * Receives decisions until the connection ends, or no data arrives for too long.
 * @param {{opened: () => void, event: (name: string, data: any) => void}} callbacks
 */
export async function follow(callbacks) {
  const abort = new AbortController();
  let alarm = setTimeout(() => abort.abort(), REPLY_TIMEOUT);
  try {
    const response = await send("api/decisions", { signal: abort.signal });
    callbacks.opened();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const events = new EventReader(callbacks.event);
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      clearTimeout(alarm);
      alarm = setTimeout(() => abort.abort(), REPLY_TIMEOUT);
      events.take(piece.value);
    }
  } finally {
    clearTimeout(alarm);
    abort.abort();
  }
}

/** Server-sent events as docward writes them: lines that end in a line feed, data as JSON on one line. */
class EventReader {
  /** @param {(name: string, data: any) => void} emit */
  constructor(emit) {
    this.emit = emit;
    this.rest = "";
  }

  take(piece) {
    const blocks = (this.rest + piece).split("\n\n");
    this.rest = blocks.pop() ?? "";
    if (this.rest.length > EVENT_LENGTH) throw new Error("an event does not end");
    blocks.forEach((block) => this.read(block));
  }

  read(block) {
    const fields = new Map(block.split("\n").map((line) => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon), line.slice(colon + 1).trimStart()];
    }));
    if (fields.has("data")) this.emit(fields.get("event") ?? "message", JSON.parse(fields.get("data") ?? "null"));
  }
}

async function send(path, options) {
  const known = token.get();
  // Tokens are printable ASCII; other characters are not valid in a header.
  if (known && !/^[!-~]+$/.test(known)) throw new RequestError(401, null);
  const headers = { ...options.headers, ...(known ? { Authorization: `Bearer ${known}` } : {}) };
  const response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  if (!response.ok) throw new RequestError(response.status, await response.json().catch(() => null));
  return response;
}
