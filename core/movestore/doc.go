// Package movestore moves a service from one store to another without a stop and without a second run: to another kind of store,
// another server, another prefix or another schema. docs/operations.md has the deploys one after the other.
//
// # Steps
//
// A process is in one of four steps. A deploy takes all processes from one step to the next. The next deploy begins when no process
// of the step before it lives any more, so that at every moment all processes are in two neighbouring steps. A deploy may also go one
// step back.
//
//	step      the store of core.Config     new keys are claimed in    it asks both stores
//	0         the old store                the old store              no
//	Prepare   movestore.Prepare(from, to)  the old store              yes
//	Move      movestore.Move(from, to)     the new store              yes
//	3         the new store                the new store              no
//
// The deploy to step 3 begins when the old store has no record left. That is one retention after the last process of the step Prepare
// has ended, with Keep.LateRetry by that much later, and later if keys whose runs fail are sent again and again: a record is claimed
// again in the store that has it, and each claim starts the retention anew. Nothing is copied. A deploy from Prepare back to step 0
// begins when the new store has no record.
//
// # Why no key runs twice
//
// Each process claims a key in one store, its home, before it looks at the other one, which is away. It runs only if the other store
// then has no record of the key, or has granted it a claim of that record, too. So of two processes that claim one key in two stores,
// at least one sees the claim of the other one and gives its own claim back. If both see it, both clients get 409 in-progress.
//
//	neighbours         both meet in
//	0 and Prepare      the old store: both claim there, the new one is empty, and Prepare writes nothing into an empty store
//	Prepare and Move   the store in which the other one has claimed
//	Move and 3         the new store: both claim there, the old one is empty, and Move writes nothing into an empty store
//
// If a deploy leaves a step out, the neighbours do not meet: processes of the steps 0 and Move, or Prepare and 3, can run one key at
// the same time.
//
// # What each call does
//
// The home of a new key is the own store of the step: the old one for Prepare, the new one for Move.
//
//   - Begin looks at the other store first. If that has a record, it is the home; otherwise the own store is. Begin claims the key at
//     home and looks at the other store. If there is nothing, it returns the claim. If there is a record, Begin claims that one, too:
//     without success it gives the claim at home back and returns what it found, such as an outcome to replay; with success it keeps
//     the claim of the record that has had runs, and gives the other one back. A record of claims without a run does not count.
//     For a new key that is one write and two reads.
//   - Extend, Complete, Fail, Checkpoint, Checkpoints and Reopen go to the own store, and to the other one unless that returned no error.
//     The owner of a run is random and its fence is compared, so only the store that has granted a claim accepts them. For claims of
//     which this process knows that the other store has them, the order is the other way round.
//   - A Fail without a fence, which withdraws a Begin without a reply, goes to both stores.
//   - Watch subscribes to both stores.
//   - Look, Steps and Outcome show the record that Begin would act on. Scan finds the records of both stores. Forget also forgets what
//     the store that is not shown has under the name, and nothing if another record is shown than the one that was seen.
//   - There are no sessions, so InTx of core/pgstore and core/sqlitestore returns an error in a handler. A service can use InTx of its
//     new store from the step 3 on, and cannot leave a store without a stop as long as its handlers use InTx of that.
//
// # When a store is unavailable, or a process dies
//
// While either store is unavailable, no key is claimed in either step, since a process cannot know what that store has: the request
// gets 503. Replays go on if the store that has the outcome responds and the other one fails at once. If the other one hangs, they get
// 503, too, unless it is the own store of the step. Runs that have begun need only the store that has their claim, and are settled
// there. With Config.DangerouslyFailOpen handlers run unprotected in that time, as with one store.
//
// A process that dies between two calls of Begin leaves a claim without a run in one store, or in both. It lasts for its lease, and
// other requests with the key get 409 in-progress for that time. Afterwards a request takes it over (Run.Takeover), or finds the
// outcome that the other store has. If the two stores then have records of two different requests, both requests are refused with
// 422 until the retention ends or an operator forgets the key, as in a change of Config.Secret.
//
// # Clocks and fences
//
// Each store counts leases, retentions and fences by its own clock, and a fence is the time of its claim. Fences of a key grow across
// both stores as long as the clocks of the two servers differ by less than the time between the two claims. A server to which a
// handler passes Run.Fence needs clocks that agree.
//
// Both stores must read what they have written: a server that answers reads from a replica that lags does not show a claim.
package movestore
