// Package core is an idempotency engine. It runs each operation that has a key at most once at a time, stores the outcome, and
// replays that outcome to every retry. Start with [Engine.Do], [Config] and docs/guide.md. Comments quote statements by ids such
// as CON-05, which docs/checks.md lists.
//
// Within the retention, while the store keeps its data and the owner renews its lease, at most one run of a scope and key is in
// progress, and once an outcome is stored, later identical requests get that outcome and run nothing. docs/RELIABILITY.md says
// more, and what is not promised.
//
// # Words
//
//   - The key is what the client sent, and the scope is the caller that it belongs to. The record is what the store holds under
//     the hash of both.
//   - A claim is the right to run. Its owner, which is random per run, holds it until its lease ends. The fence is a number that
//     grows with each claim of a key. A takeover is a new claim after a lease that ended without an outcome.
//   - The outcome is the result of a run. To keep it is to store it for the retention; to replay it is to send it again. A
//     tombstone is what remains of a record without it.
//   - The fingerprint identifies a request: two requests with one are the same.
//
// # States
//
//	state                   meaning                                     next states
//	(absent)                never seen, or the retention is over        begin -> STARTED
//	STARTED, lease running  one owner runs                              complete -> COMPLETED, fail -> FAILED, extend -> STARTED
//	STARTED, lease over     outcome unknown; calls of the owner count   begin -> STARTED (takeover, attempt+1), or reported as
//	                        until there is another claim                unknown if the claim asks for that
//	COMPLETED               the outcome is kept                         absent after the retention, or a tombstone
//	FAILED                  a run failed, or nothing ran (no attempt)   begin -> STARTED (attempt+1)
//
// A request with another fingerprint is refused in every state and changes nothing. Only a FAILED record accepts it, if its runs
// reported no effects.
package core
