/**
 * Follows channels of the live event stream from a browser (or Node 22 and newer): the I/O around
 * {@link Consumer}. Events come over one WebSocket; what did not travel is fetched.
 *
 * ```js
 * const stream = new Stream({
 *   url: "https://exports.example.com/",
 *   token: () => session.token,
 *   onEvent: (event) => show(event),
 * });
 * stream.follow("job:0197f604-49fe-7b73-bb81-df2e93a7e47d", { after: 0 });
 * stream.start();
 * ```
 */
export type Clock = {
    now: () => number;
    /**
     * calls once after a pause
     */
    set: (then: () => void, pause: number) => any;
    clear: (timer: any) => void;
};
export type StreamOptions = {
    /**
     * where the service is; `v1/stream` is resolved against it
     */
    url: string | URL;
    /**
     * the credential; it is never put
     * into a URL
     */
    token: string | (() => string | Promise<string>);
    /**
     * each event once
     */
    onEvent?: (event: import("./consumer.js").StreamEvent, channel: string) => void;
    /**
     * an event of a type that is not in the catalogue
     */
    onUnknown?: (event: import("./consumer.js").StreamEvent, channel: string) => void;
    /**
     * replaces all that was known of the channel
     */
    onSnapshot?: (snapshot: import("./consumer.js").Snapshot, channel: string) => void;
    onState?: (state: import("./consumer.js").State) => void;
    /**
     * the channel is not followed any more
     */
    onEnded?: (channel: string, reason: import("./consumer.js").EndReason, code?: string) => void;
    WebSocket?: typeof globalThis.WebSocket;
    fetch?: typeof globalThis.fetch;
    clock?: Clock;
    random?: () => number;
    /**
     * milliseconds, the server's
     */
    heartbeat?: number;
};
/** A connection to the stream that keeps itself up. */
export declare class Stream {
    #private;
    /** @param {StreamOptions} options */
    constructor(options: StreamOptions);
    /**
     * Follows a channel: from a position, from a snapshot, or from now on.
     * @param {string} channel e.g. `job:<id>`
     * @param {import("./consumer.js").Position} [position]
     */
    follow(channel: string, position?: import("./consumer.js").Position): void;
    /** @param {string} channel */
    leave(channel: string): void;
    /** Connects, and from then on comes back by itself until `stop` or the end of the access. */
    start(): void;
    /** Disconnects; no answer that is under way is told. Channels and positions stay for `start`. */
    stop(): void;
    /**
     * Where a channel is, to go on from there another time.
     * @param {string} channel
     */
    position(channel: string): import("./consumer.js").Position | undefined;
}
