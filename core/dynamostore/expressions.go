package dynamostore

import (
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/internal/record"
)

// The conditions of PutItem, which writes a whole item.
const (
	isNew       = "attribute_not_exists(id)"
	isUnchanged = "claim_fence = :fence AND revision = :revision"
)

// isHeld is the condition of UpdateItem: the claim has the record, and it runs. It also excludes items that need a closer
// look, since the update would shorten what Time to Live leaves of a tombstone.
const isHeld = "claim_owner = :owner AND claim_fence = :fence AND claim_state = :started AND layout = :layout" +
	" AND expires_at > :now AND delete_after <= :delete_after"

// The updates of a held record.
const (
	renews    = ", expires_at = :expires_at, delete_after = :delete_after, revision = revision + :one"
	extends   = "SET lease_us = :lease_us, lease_end = :lease_end, beat = beat + :one" + renews
	completes = "SET claim_state = :ended, outcome = :outcome" + renews
	fails     = "SET claim_state = :ended, cause = :cause" + renews
)

// watched are the attributes that a watch reads.
const watched = "id, claim_state"

// inScope selects the items of a scope in a Scan.
const inScope = "begins_with(id, :scope)"

// unchanged returns the values of isUnchanged for an item.
func (it *item) unchanged() attributes {
	return attributes{":fence": number(it.fence), ":revision": number(it.revision)}
}

// update is an UpdateItem of the record of a claim, if the claim holds it.
type update struct {
	name       [32]byte
	fence      int64
	expression string
	condition  string
	values     attributes
}

// held returns an update with the values that all of them have. now and expires are times of DynamoDB's clock.
func held(c *driver.Claim, expression string, now, expires, tombstone int64) *update {
	return &update{name: c.Key, fence: c.Fence, expression: expression, condition: isHeld, values: attributes{
		":owner": binary(c.Owner[:]), ":fence": number(c.Fence), ":started": text(record.Started), ":layout": number(layout),
		":now": number(now), ":expires_at": number(expires), ":delete_after": number(deleteAfter(expires, tombstone)),
		":one": number(1),
	}}
}

// extend returns the update of Extend.
func extend(c *driver.Claim, now, expires, length, leaseEnd int64) *update {
	u := held(c, extends, now, expires, 0)
	u.values[":lease_us"], u.values[":lease_end"] = number(length), number(leaseEnd)
	return u
}

// complete returns the update of Complete. tombstone is 0 without a LateRetry.
func complete(c *driver.Claim, outcome []byte, now, expires, tombstone int64) *update {
	u := held(c, completes, now, expires, tombstone)
	u.values[":ended"], u.values[":outcome"] = text(record.Completed), binary(outcome)
	if tombstone > 0 {
		u.expression += ", late_until = :late_until"
		u.values[":late_until"] = number(tombstone)
	}
	u.expression += " REMOVE noted, steps"
	return u
}

// fail returns the update of a Fail with a fence. A record becomes free for another request only if no earlier run has had
// effects.
func fail(c *driver.Claim, f driver.Failure, now, expires int64) *update {
	u := held(c, fails, now, expires, 0)
	u.values[":ended"], u.values[":cause"] = text(record.Failed), binary([]byte(record.Cause(f)))
	if f.NotRun {
		u.expression += ", attempt = attempt - :one"
	}
	if f.NoEffects || f.NotRun {
		u.expression += " REMOVE fingerprint, steps"
		u.condition += " AND history = :without_effects"
		u.values[":without_effects"] = number(record.WithoutEffects)
	}
	return u
}
