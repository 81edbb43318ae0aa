// Package dynamostore keeps records in a table of Amazon DynamoDB, for services that run no database server.
//
//	store := dynamostore.New(client, "payments-idempotency") // for core.Config.Store; client is a *dynamodb.Client
//
// The table has a partition key named id, which is a string, no sort key, and Time to Live on the attribute delete_after.
// [CreateTable] makes such a table. [Store.Check] looks at one.
//
// # Time
//
// A condition of DynamoDB cannot read a clock, so no write can ask whether a lease is over. The clocks of the processes need not
// agree, because none of them is used. Two other clocks are.
//
// A lease is counted by watching. Each claim and each extension of its lease changes the fence or the beat of the record. A
// process that has seen the same fence and the same beat for the whole length of the lease, by its own monotonic clock, knows
// that the lease is over. The process that has granted or extended a lease counts from the reply of DynamoDB. Another process
// counts from when it first reads the record. So after a crash a takeover may wait for one lease from the first retry that a
// process gets. No lease ends early, however wrong the clocks are.
//
// What must end without anybody watching is counted by the clock of DynamoDB, as the Date header field of its responses shows
// it: retentions and tombstones, and also leases. The last is for services whose processes do not live for a lease, such as
// functions: a lease is also over when it ended a minute ago by that clock. A process reads the clock of DynamoDB with each
// response, and measures the time since then with its monotonic clock. It reads it again before a call if the last response is
// older than ten minutes, or if the machine was suspended, which the distance of its two clocks shows.
//
// The assumption is: two Date header fields of DynamoDB are at most half a minute wrong. Each retention and each tombstone is
// stored a minute longer than requested, so none ends early under the assumption. If it does not hold, a lease can be taken over
// while its owner lives, and a retention can end early. [Store.Check] compares that clock with the clock of the machine.
//
// # Fences
//
// A fence is the time of the claim in µs by the clock of DynamoDB, or one more than the fence of the item, whichever is greater.
// DynamoDB deletes an item an hour after its record and its tombstone have expired, or later. So fences of a key grow, also
// after the item was deleted, as long as that clock does not go back by an hour. [Store.Forget] leaves an item with the fence for
// an hour.
//
// # The item
//
// A record is one item. All writes are conditional writes of that item. There are no transactions and no indexes.
//
//	id            S  the name of the record, as in logs
//	layout        N  1: the version of this layout. A store refuses later ones
//	revision      N  changes with each write
//	claim_state   S  STARTED, COMPLETED, FAILED, or empty if the record was forgotten
//	claim_owner   B  of the last claim
//	claim_fence   N  of the last claim
//	beat          N  changes with each extension of the lease
//	lease_us      N  the length of the lease in µs
//	lease_end     N  when the lease is over in any case
//	expires_at    N  end of the retention
//	late_until    N  end of the tombstone behind an outcome; 0 without one
//	delete_after  N  in seconds, for Time to Live: an hour after expires_at and late_until
//	attempt       N  how many runs count
//	operation     N  the fence of the first claim of the operation
//	history       N  0: no effects so far, 1: a run vanished, 2: a run failed that may have had effects
//	fingerprint   B  of the request; absent if the record is free for another one
//	noted         B  the last 16 owners that have failed or withdrawn
//	cause         B  of a failure
//	outcome       B  of a COMPLETED record
//	steps         M  the results of steps, by their escaped names
//
// Times are µs since 1970 by the clock of DynamoDB. An item whose times are over counts as absent, since Time to Live may
// delete it days later, or never.
//
// # Calls and costs
//
// A new key costs two writes, the claim and the outcome, and each lease that ends during a run costs another. A replay, a
// conflict and a mismatch are a write whose condition fails: one trip, since the reply has the item. DynamoDB bills that as a
// write of an item of that length. Servers whose replies do not have the item are asked for it by a consistent read.
//
// The client of the SDK repeats a request whose reply was lost. The repeated write finds its own owner in the item, so it returns
// what the first one would have returned.
//
// # Long outcomes
//
// An item has at most 400 KB. [ErrTooLarge] refuses an outcome that does not fit. The engine sends it again for a lease, holds
// the key meanwhile, and then stores it without its body. So set Keep.Blobs of core.Config, and Keep.BlobsFrom to at most 300 KB;
// without blobs set Keep.MaxBody to that, which omits a longer body at once. The results of all steps of a run have about 390 KB.
//
// # Global tables
//
// In a global table with multi-Region eventual consistency, which is the default, a condition sees the writes of its own Region
// only, and the last write wins. So all processes that share keys MUST use one Region; another Region may take over after all
// requests to the first one have stopped, and a claim or outcome that was not replicated by then is lost. With multi-Region
// strong consistency a condition sees the writes of all Regions, so processes in all Regions may share keys. Such tables have no
// Time to Live, so nothing deletes the items of records that have expired. This package was not tested with global tables.
//
// # Duties of the caller
//
//   - Credentials need dynamodb:GetItem, PutItem and UpdateItem on the table; for requests that wait, BatchGetItem; for
//     operators, Scan; for [Store.Check], DescribeTable, DescribeTimeToLive and DescribeContinuousBackups.
//   - No other program MUST write to the table. No cache, such as DAX, MUST be between the store and the table.
//   - A restore of a backup takes claims and outcomes back to the time of the backup: their keys run again.
//   - Call [Store.Check] at start-up and log what it finds (SHOULD).
package dynamostore
