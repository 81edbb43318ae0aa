// Package pgstore keeps records in PostgreSQL, next to the data that handlers change. The functions of schema.sql are the
// same state machine as the Lua scripts of package redisstore, in PL/pgSQL. Each call of the store is one statement with one
// function, and one round trip after the connection has prepared it.
//
//	err := pgstore.Migrate(ctx, pool) // makes or upgrades the tables; safe at every start of every process
//	store := pgstore.New(pool)        // for core.Config.Store
//	n, err := store.Sweep(ctx, 1000)  // call it from a timer of the service: it deletes what has expired
//
// # One transaction with the handler's effects
//
// A handler calls [InTx] instead of pgx.BeginTxFunc. The store commits the transaction together with the outcome, and not
// before. So PostgreSQL has both or neither, even if the process or the server dies in between. The transaction is rolled
// back if the run ends without an outcome to keep (a 5xx, an error, a panic, an unknown outcome) or has lost its claim.
//
// If the commit fails, the handler's response is not sent: the client gets 409 claim-lost, and its retry runs the handler. If
// the reply to the commit is lost, the store looks the outcome up. If that fails too, the client gets 503 store-unavailable.
// Its retry replays the outcome if there is one, and runs the handler otherwise.
//
// Effects elsewhere, such as calls to other services, have only the promises of package core. A handler that streams sends its
// response before the commit, so it should not use InTx. In an unprotected run (Run.Unprotected) there is no outcome, and InTx
// commits when it returns.
//
// # A deploy
//
// This package makes version 2 of the schema. Its Migrate upgrades version 1, and processes of version 1 continue to work on
// the upgraded schema. If a process needs a later version than the schema has, PostgreSQL refuses its calls, and no handler
// runs. If you make the schema by hand, apply schema.sql again before the first process of the new version starts.
//
// # Duties of the caller
//
//   - Call Sweep regularly (SHOULD). Expired rows do nothing except take up space.
//   - A pool MUST have more connections than there are concurrent runs with an InTx. Each of these holds a connection until its
//     run ends, and the engine needs another one to renew the lease. Or give the Store its own pool.
//   - fsync and synchronous_commit MUST be on. If one is off, or after a failover to a standby that was behind, acknowledged
//     records may be missing, and their keys are new.
//   - With a pooler such as PgBouncer, give the Store a pool of direct connections for Watch, with ListenOn. Without it requests
//     that wait for another one poll after 1, 2 and 4 seconds. If the pooler shares connections between transactions,
//     handlers need pgx.QueryExecModeExec for statements of their own; the calls of the Store use it anyway.
//   - Call [Check] at start-up and log what it finds (SHOULD).
//   - If the default_transaction_isolation of the role is above READ COMMITTED, give InTx its level (SHOULD; see there). The
//     calls of the store use READ COMMITTED all the same, in three round trips instead of one.
//
// If its disk is full, PostgreSQL refuses every call, even Complete and Fail. The engine then repeats these, as it does when
// the store is unavailable.
package pgstore
