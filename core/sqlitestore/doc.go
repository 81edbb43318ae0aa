// Package sqlitestore keeps records in a file of SQLite, without a server, next to the data that handlers change. It is for
// services on one machine, with any number of processes, and for development: the records outlive the process. It is pure Go.
//
//	store, err := sqlitestore.Open(ctx, "payments.db") // for core.Config.Store; makes the file and the tables
//	defer store.Close()                                // after Engine.Close
//
// # One transaction with the handler's effects
//
// A handler that calls [Store.InTx] has its effects committed together with the outcome, and not before. So the file has both or
// neither, even if the process dies in between. The transaction is rolled back if the run ends without an outcome to keep (a 5xx,
// an error, a panic, an unknown outcome) or has lost its claim.
//
// SQLite has one writer. From InTx to the end of the run, all other claims and outcomes wait, in all processes, and get 503 after
// Limits.StoreTimeout. So InTx belongs to the end of a handler, after its calls to other services. A handler that streams sends
// its response before the commit, so it should not use InTx. If the commit fails, the handler's response is not sent: the client
// gets 409 claim-lost, and its retry runs the handler. If the commit does not end in time, the client gets 503 store-unavailable,
// and its retry finds out.
//
// # What is safe when
//
// With the default, synchronous=FULL, each claim and each outcome is on the disk when the call returns. The end of the process
// loses nothing, and neither does a loss of power, if the disk keeps what it has confirmed. With [NormalSync] a loss of power may
// lose the last ones.
//
// # Time
//
// The clock is that of the machine. All processes that have the file open are on one machine, so they have one clock. If that
// clock jumps forward, leases and retentions end early: a run whose lease has ended so can be taken over while it goes on, and
// then loses its claim. If the clock jumps back, they last longer. Fences grow in any case.
//
// # Locks
//
// A call that writes waits for the write lock of the file as long as its context lasts, in the engine for Limits.StoreTimeout;
// the wait of other processes is not in order. Calls that change nothing (replays, conflicts, mismatches) wait for no lock. A
// call ends with its context also if the disk hangs.
//
// # A full disk
//
// SQLite refuses what makes the file or its write-ahead log grow. A new key is refused with [ErrFull], and no handler runs. An
// outcome or failure of a run that has begun is recorded if it fits into pages that the file and the log have already. Otherwise
// the engine repeats the call, as it does when the store is unavailable, so the outcome is stored when there is room again. With
// [MaxBytes] below what the disk has, new keys are refused before the disk is full, and the outcomes of runs that have begun find
// room.
//
// # Duties of the caller
//
//   - The file MUST be on a file system of this machine. SQLite's locks and its shared memory do not work between machines.
//   - While a process has the file open, nobody MUST delete, rename or replace it: the process would go on with the old file, and
//     others would begin a new one. For a backup use VACUUM INTO or the backup command of sqlite3. A copy of the file without its
//     -wal file lacks the last records.
//   - A process MUST NOT open the file with anything else than this package or its driver, not even to copy it: when it closes
//     the file, the system releases the locks of SQLite. On Linux, sqlite.OFDLocking(true) before the first Open avoids that.
//   - Call [Store.Check] at start-up and log what it finds (SHOULD).
package sqlitestore
