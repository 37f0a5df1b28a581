/**
 * The consumer half of `beyond-cdn-events/1` as a state machine without I/O: it is told what
 * happened ({@link Input}) and the time in milliseconds, and answers what to do ({@link Output}).
 *
 * What it holds to:
 * - A channel's cursor only goes up by one, event by event; only a snapshot moves it otherwise.
 * - An event takes effect once by its `id`, in whatever channels it comes.
 * - What comes early is held, at most so many events, and the gap before it is replayed: one
 *   request of a channel at a time, and the answer to an older one counts for nothing.
 * - Another epoch, another id under the same sequence, or a cursor that the server cannot serve:
 *   the position is worth nothing, and a snapshot gives a new one.
 */
/** The broadcast name of a batch, and the value of `protocol`. */
export declare const BATCH = "beyond-cdn-events/1";
/** The broadcast name of a pointer. */
export declare const POINTER = "beyond-cdn-pointer/1";
/** The name of what a server says about the connection itself. */
export declare const CONTROL = "outport-control/1";
/**
 * Every type of the catalogue. One that is not here moves the cursor and has no effect: it is
 * told as `unknown`.
 */
export declare const TYPES: readonly string[];
export type Scope = {
    organization: string;
    application?: string;
    job?: string;
};
export type StreamEvent = {
    id: string;
    stream: Scope;
    sequence?: number;
    type: string;
    /**
     * RFC 3339, when the change was committed
     */
    time: string;
    /**
     * by type
     */
    data: Record<string, any>;
};
export type Batch = {
    protocol: string;
    channel: string;
    epoch?: string;
    events: StreamEvent[];
};
export type Pointer = {
    protocol: string;
    channel: string;
    epoch?: string;
    sequence: number;
    reason: string;
};
export type Page = {
    epoch?: string;
    floor: number;
    head: number;
    events: StreamEvent[];
};
export type Snapshot = {
    epoch?: string;
    sequence: number;
    [member: string]: any;
};
export type Position = {
    after?: number;
    epoch?: string;
    snapshot?: boolean;
};
export type EndReason = "unauthorized" | "revoked" | "refused" | "protocol" | "channels";
export type State = {
    state: "stopped" | "connecting" | "live";
} | {
    state: "waiting";
    retryAt: number;
} | {
    state: "ended";
    reason: EndReason;
};
export type Frame = {
    action: "subscribe";
    channel: string;
    after?: number;
    epoch?: string;
} | {
    action: "unsubscribe";
    channel: string;
} | {
    action: "ping";
};
export type Input = {
    on: "start";
} | {
    on: "stop";
} | {
    on: "open";
} | {
    on: "tick";
} | {
    on: "closed";
    code: number;
} | {
    on: "frame";
    frame: any;
} | ({
    on: "follow";
    channel: string;
} & Position) | {
    on: "leave";
    channel: string;
} | {
    on: "page";
    request: number;
    page: Page;
} | {
    on: "gone";
    request: number;
} | {
    on: "snapshot";
    request: number;
    snapshot: Snapshot;
} | {
    on: "refused";
    request: number;
    status: number;
} | {
    on: "failed";
    request: number;
    retryAfter?: number;
};
export type Output = {
    do: "connect";
} | {
    do: "authenticate";
} | {
    do: "close";
} | {
    do: "send";
    frame: Frame;
} | {
    do: "replay";
    request: number;
    channel: string;
    after: number;
    epoch?: string;
} | {
    do: "load";
    request: number;
    channel: string;
} | {
    do: "event" | "unknown";
    channel: string;
    event: StreamEvent;
} | {
    do: "snapshot";
    channel: string;
    snapshot: Snapshot;
} | {
    do: "ended";
    channel: string;
    reason: EndReason;
    code?: string;
} | ({
    do: "state";
} & State);
export type ConsumerOptions = {
    /**
     * milliseconds between two of the server's; twice that without a
     * word, and the connection is given up
     */
    heartbeat?: number;
    /**
     * events of a channel that may wait for those before them
     */
    held?: number;
    /**
     * from 0 to below 1
     */
    random?: () => number;
};
export type Phase = "stopped" | "waiting" | "connecting" | "ready" | "ended";
/** Follows channels over one connection. */
export declare class Consumer {
    #private;
    /** @param {ConsumerOptions} [options] */
    constructor({ heartbeat, held, random }?: ConsumerOptions);
    /** When `tick` is due, in milliseconds; Infinity when nothing is waited for. */
    get deadline(): number;
    /**
     * Where a channel is, to go on from there another time; undefined when that is not known.
     * @param {string} channel
     * @returns {Position | undefined}
     */
    position(channel: string): Position | undefined;
    /**
     * Takes in what happened.
     * @param {Input} input
     * @param {number} now milliseconds of a clock that does not go back
     * @returns {Output[]} what to do about it, in this order
     */
    step(input: Input, now: number): Output[];
}
