// Package pgstore keeps records in PostgreSQL, beside the data that handlers change. It is the state machine of the Lua
// scripts, in PL/pgSQL: each verb is one function of schema.sql and one statement, which is one round trip once the
// connection has prepared it.
//
//	err := pgstore.Migrate(ctx, pool) // makes or upgrades the tables; safe at every start of every process
//	store := pgstore.New(pool)        // for core.Config.Store
//	n, err := store.Sweep(ctx, 1000)  // from a timer of the service's own: deletes what has expired
//
// # One transaction with the handler's effects
//
// [InTx] takes the place of pgx.BeginTxFunc in a handler. What it does is committed together with the outcome and not
// before: either both are there or neither is, also when the process or the server dies between them. When the run ends
// without an outcome to keep (a 5xx, an error, a panic, an unknown outcome), or has lost its claim, the transaction is
// rolled back.
//
// If the commit fails, nobody gets the handler's answer: the client gets 409 claim-lost, and its retry runs the handler. If
// the answer to the commit is lost, the store looks the outcome up. Where it cannot even do that, the client gets 503
// store-unavailable, and its retry replays the outcome if it is there and runs the handler if it is not.
//
// Effects elsewhere, by calls to other services for example, have the promises of package core and no more. A handler that
// streams has sent its answer before the commit, so it should not use InTx. In an unprotected run (Run.Unprotected) there is no
// outcome to join: InTx then commits when it returns.
//
// # A deploy
//
// A process whose package makes version 2 of the schema upgrades one of version 1 when it calls Migrate, and processes of
// version 1 work on it as before. A process that is ahead of its schema is refused by PostgreSQL, and runs nothing. Where the
// schema is made by hand, apply schema.sql again before the first process of the new version starts.
//
// # Duties of the caller
//
//   - Sweep SHOULD be called now and then; expired rows do nothing but take up room.
//   - A pool MUST have more connections than runs with an InTx at a time: each of these holds one until its run ends, and
//     the engine renews the lease on another. Or give the Store a pool of its own.
//   - fsync and synchronous_commit MUST stay on. With either off, or after a failover to a standby that is behind, records
//     that were acknowledged may be gone, and their keys are new.
//   - Behind a pooler that shares connections between transactions, use pgx.QueryExecModeExec, and do not Watch: that
//     needs a connection which stays.
//   - A role whose default_transaction_isolation is above READ COMMITTED SHOULD give InTx its level (see there). Verbs run at
//     READ COMMITTED all the same, in three round trips instead of one.
//
// A disk that is full refuses every verb, Complete and Fail too; the engine then sends these again, as to a store that is away.
package pgstore
