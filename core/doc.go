// Package core is an idempotency engine. It runs each operation that has a key at most once at a time, stores the outcome, and
// replays that outcome to every retry. Adapters call it in front of HTTP handlers, and stores hold its records.
//
// # Words
//
//   - The key is what the client sent. The scope is the caller that the key belongs to. The record is what the store holds under
//     the hash of both.
//   - A claim is the right to run. Its owner, which is random per run, holds it until its lease ends. The fence is a number that
//     grows with each claim of a key.
//   - The outcome is the result of a run. To keep an outcome is to store it for the retention; to replay it is to send it again.
//   - A takeover is a new claim after a lease that ended without an outcome.
//   - The fingerprint identifies a request: two requests with one fingerprint are the same.
//   - A tombstone is what remains of a record without its outcome.
//
// # States
//
//	state                    meaning                                    next states
//	(absent)                 never seen, or the retention is over       begin -> STARTED
//	STARTED, lease running   one owner runs                             complete -> COMPLETED, fail -> FAILED,
//	                                                                    extend -> STARTED, or the lease ends
//	STARTED, lease over      the owner is silent: outcome unknown       begin -> STARTED (takeover, attempt+1), or
//	                                                                    reported as unknown if the claim asks for that;
//	                                                                    until then calls of the owner still count
//	COMPLETED                the outcome is kept                        absent after the retention, or a tombstone
//	FAILED                   the run failed and may be retried: cause   begin -> STARTED (attempt+1)
//	                         and attempt are kept; or nothing ran, and
//	                         no attempt counts
//
// A request whose fingerprint differs from the record's is refused in every state and changes nothing. There is one exception: a
// FAILED record accepts another request if all of its runs said that they had no effects.
//
// # Promises
//
// Within the retention, while the store keeps its data and the owner renews its lease:
//
//   - at most one run is in progress per scope and key at any time;
//   - once an outcome is stored, later identical requests get that outcome and the handler is not run;
//   - a different request under the same key is refused and leaves the stored outcome untouched.
//
// The engine holds a response back until its outcome is stored, so that no client has seen a response that a retry could
// contradict. There are two exceptions. The first is a handler that streams (see package capture). The second is a store that
// becomes unavailable while the handler runs: the client gets the response while the lease is known to hold, and the outcome is
// pending:
//
//   - The engine retries the commit with pauses of at most half a second, and at once when the store responds to any call. It
//     extends the lease as soon as the store accepts that.
//   - Meanwhile the process that ran the handler holds the claim, however many leases pass: a request with the key gets the
//     outcome, or 409.
//   - An outcome that the store refuses for a whole lease, while it accepts extensions, is stored without its body.
//   - After ten leases the engine gives the outcome up, and calls Hooks.Lost, unless it has called that for this run before.
//
// # What is not promised
//
//   - If the process dies, or the store is lost, between the effect of a handler and the stored outcome, a retry after the lease
//     runs the handler again.
//   - A 5xx can repeat effects, since the next request runs again.
//   - If a lease ends while its owner still runs, because of a pause or a partition, two runs can overlap. The store rejects what
//     the old owner writes to the record, but nothing undoes its side effects.
//   - A failover of Redis can lose acknowledged writes. The keys of these records are new again.
//   - After the retention a key is new.
//
// # Tasks, messages and steps
//
// [Engine.DoTask] runs operations that are not HTTP requests, such as messages, jobs, gRPC calls and commands, through the same
// states. Package consumer does that for the deliveries of a message broker: the group is the scope, and the message's ID is the
// key. Attempts count runs, and not deliveries. A dead task is COMPLETED, with the cause of its death as its outcome; only an
// operator can return it to FAILED, by [Engine.Resolve].
//
// [Step] stores the results of finished steps under the claim of a run, until the run has an outcome.
//
// # Runs inside runs
//
// A context belongs to the innermost run: [FromContext], [ChildKey], [Step], [Decide] and [CancelOnDisconnect] see nothing of the
// runs around it. The handler of a batch is in no run. An unprotected run hides the run around it like any other. If a run of
// the same record encloses a request, however many other runs are between them, the inner engine lets the request pass, and only
// the outer engine stores the outcome.
//
// # Duties of the caller
//
//   - Scope MUST come from authentication, never from what the client claims about itself.
//   - A handler that takes over ([Run].Takeover) SHOULD find out whether the effect of the earlier run has happened, and SHOULD
//     give the fence to systems that can reject an older one.
//   - A handler SHOULD stop when its context is cancelled with a cause that wraps [ErrLost]. A handler that may hang needs
//     LeaseConfig.MaxRun, or it holds its key as long as its process lives.
//   - The middleware MUST run after authentication and rate limits, so that these respond first, and SHOULD run inside
//     compression and CORS, so that their header fields are made anew for each response.
//   - [Engine.Close] SHOULD be called after the server has shut down.
//
// # Checks
//
// Comments quote statements about the library's behaviour by ids such as CON-05. docs/checks.md of the repository lists all of
// them, with the tests that check each.
package core
