// Package core is an idempotency engine: it runs each keyed operation at most once at a time, keeps its outcome, and
// replays that outcome to every retry. Adapters put it in front of HTTP handlers; stores keep its records.
//
// # Words
//
// The key is what the client sent, the scope is whose key it is, and the record is what the store holds under the hash
// of both. A claim is the right to run; one owner, random per run, holds it until its lease ends. The fence is a number
// that only grows from one claim of a key to the next. The outcome is what the run produced; to keep it is to store it
// for the retention, and to replay it is to send it again. A takeover is a new claim after a lease ended without an
// outcome. The fingerprint is what makes two requests the same.
//
// # States
//
//	state                    meaning                                    leaves by
//	(absent)                 never seen, or the retention is over       begin -> STARTED
//	STARTED, lease running   one owner runs                             complete -> COMPLETED, fail -> FAILED,
//	                                                                    extend -> STARTED, the lease ends
//	STARTED, lease over      the owner is silent: outcome unknown       begin -> STARTED (takeover, attempt+1), or
//	                                                                    reported as unknown when the claim says so;
//	                                                                    until then its owner's verbs still count
//	COMPLETED                the outcome is kept                        the retention ends; a tombstone may stay behind
//	FAILED                   ended in a way worth retrying; cause and   begin -> STARTED (attempt+1)
//	                         attempt are kept, no outcome; or nothing
//	                         ran, and no attempt counts
//
// A request whose fingerprint is not the record's is refused in every state and changes nothing. Only a FAILED record
// whose runs all said that they had no effects accepts another request.
//
// # Promises
//
// Within the retention, while the store keeps its data and the owner renews its lease:
//
//   - at most one run is in progress per scope and key at any time;
//   - once an outcome is stored, later identical requests get that outcome and the handler is not run;
//   - a different request under the same key is refused and leaves the stored outcome untouched.
//
// The answer is held back until it is kept, so nobody has seen an answer that a retry could contradict. There are two
// exceptions: a handler that streams (see package capture), and a store that goes away while the handler runs: the client
// then gets its answer, and the outcome is pending: it is sent again, with pauses of at most half a second and at once when the
// store answers anything, and the lease is extended as soon as the store takes that. For the process that ran the handler the
// claim is held meanwhile, however many leases pass: a request with its key is answered with the outcome, or refused with 409. An
// outcome that the store refuses for a whole lease, while it takes extensions, is kept without its body. After ten leases it is
// given up, and Hooks.Lost hears of it.
//
// # What is not promised
//
// If the process dies, or the store is lost, between the handler's effect and the stored outcome, a retry after the
// lease runs the handler again. A 5xx can repeat effects, since the next request runs again. A lease that ends while its
// owner still runs, by a pause or a partition, allows an overlap: the old owner's record is fenced off, its side effects are
// not. A failover of Redis can lose acknowledged writes, which opens the key again. After the retention a key is new.
//
// # Messages and steps
//
// [Consume] takes deliveries of a message broker through the same states: the group is the scope, the message's ID the key.
// What it counts as attempts are runs. A message that is dead is COMPLETED, with what it died of as its outcome; only an
// operator leads from there back to FAILED, by [Engine.Resolve].
// [Step] keeps the results of finished steps under the claim of a run, of either kind, until there is an outcome.
//
// # Runs inside of runs
//
// A context belongs to the innermost run only: [FromContext], [ChildKey], [Step], [Decide] and [CancelOnDisconnect] see nothing
// of the runs around it. The handler of a batch is in no run, and an unprotected run hides the one around it like any other. An
// engine that is asked for the record of a run which goes on around it, however many others are between, stands aside: what is
// kept is the outer one's.
//
// # Duties of the caller
//
//   - Scope MUST come from authentication, never from what the client claims about itself.
//   - A handler that takes over ([Run].Takeover) SHOULD look up whether the effect of the earlier run has happened, and
//     SHOULD hand the fence to resources that can refuse an older one.
//   - A handler SHOULD stop when its context is cancelled with a cause that wraps [ErrLost]. One that may hang needs
//     LeaseConfig.MaxRun, or it holds its key as long as its process lives.
//   - The middleware MUST stand behind authentication and rate limits, so that they answer first, and SHOULD stand
//     inside compression and CORS, so that their headers are made for each answer anew.
//   - [Engine.Close] SHOULD be called after the server has shut down.
//
// # Checks
//
// Comments quote statements about the library's behaviour by ids such as CON-05. docs/checks.md of the repository lists all
// of them, with the tests that check each.
package core
