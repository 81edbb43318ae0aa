package dynamostore

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/internal/record"
)

// layout is the version of the item's attributes, which the documentation of the package lists.
const layout = 1

// farFuture is when an item expires that cannot be read: not while anybody looks.
const farFuture = 1 << 52

// attributes are those of an item.
type attributes = map[string]types.AttributeValue

// item is an item of the table, with the record in it. The zero value, with a key, is an item that does not exist.
type item struct {
	record.Record
	isStored bool
	revision int64 // as it was read; 0 if the item does not exist
	fence    int64 // as it was read
	beat     int64
	lease    int64 // the length of the lease in µs
	leaseEnd int64 // as it is stored; LeaseEnd is what judge makes of it
	steps    map[string][]byte

	of             attributes // as they were read
	sent, received time.Time  // when the request was sent that has read the item, and when its response came, by the local clock
}

// newItem returns an item of this name that does not exist.
func newItem(name [32]byte) *item { return &item{Record: record.Record{Key: string(name[:])}} }

// name returns the name of the record.
func (it *item) name() [32]byte { return [32]byte([]byte(it.Key)) }

// id returns the value of the partition key of a record.
func id(name [32]byte) types.AttributeValue {
	return &types.AttributeValueMemberS{Value: string(driver.AppendRecordName(nil, name))}
}

// key returns the primary key of the item of a record.
func key(name [32]byte) attributes { return attributes{"id": id(name)} }

// number and binary return values of attributes.
func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func binary(b []byte) types.AttributeValue {
	return &types.AttributeValueMemberB{Value: record.NotNull(b)}
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

// decode returns the item with these attributes. An error wraps driver.ErrUnreadable, and comes with an item that shows as much.
func decode(name [32]byte, of attributes) (*item, error) {
	it := newItem(name)
	if len(of) == 0 {
		return it, nil
	}
	in := &reader{of: of}
	version := in.number("layout")
	it.isStored, it.revision, it.fence, it.beat = true, in.number("revision"), in.number("claim_fence"), in.number("beat")
	it.lease, it.leaseEnd = in.number("lease_us"), in.number("lease_end")
	it.State, it.Owner, it.Fence, it.Attempt = in.text("claim_state"), in.binary("claim_owner"), it.fence, int(in.number("attempt"))
	it.Expires, it.Tombstone, it.LeaseEnd = in.number("expires_at"), in.number("late_until"), it.leaseEnd
	it.Operation, it.History, it.Cause = in.number("operation"), int(in.number("history")), string(in.binary("cause"))
	it.Noted, it.steps = in.optional("noted"), in.binaries("steps")
	it.Fingerprint, it.Outcome = in.optional("fingerprint"), in.optional("outcome")
	it.Steps, it.StoredBytes = len(it.steps), sizeOf(of)
	if version > layout || version <= 0 || in.isDamaged {
		it.State, it.Expires = "unreadable", farFuture
	}
	if version > layout {
		return it, fmt.Errorf("%w: the item %s has layout %d, and this version of dynamostore knows %d: deploy the later version",
			driver.ErrUnreadable, driver.AppendRecordName(nil, name), version, layout)
	}
	return it, it.Check("a table of DynamoDB")
}

// encode returns the attributes of the item. Its next revision is stored.
func (it *item) encode() attributes {
	steps := make(attributes, len(it.steps))
	for step, result := range it.steps {
		steps[url.QueryEscape(step)] = binary(result) // names of attributes must be UTF-8
	}
	of := attributes{
		"id": id(it.name()), "layout": number(layout), "revision": number(it.revision + 1),
		"claim_state": text(it.State), "claim_owner": binary(it.Owner), "claim_fence": number(it.Fence),
		"beat": number(it.beat), "lease_us": number(it.lease), "lease_end": number(it.leaseEnd),
		"expires_at": number(it.Expires), "late_until": number(it.Tombstone),
		"delete_after": number(deleteAfter(it.Expires, it.Tombstone)),
		"attempt":      number(int64(it.Attempt)), "operation": number(it.Operation), "history": number(int64(it.History)),
		"noted": binary(it.Noted), "cause": binary([]byte(it.Cause)), "steps": &types.AttributeValueMemberM{Value: steps},
	}
	if it.Fingerprint != nil {
		of["fingerprint"] = binary(it.Fingerprint)
	}
	if it.State == record.Completed {
		of["outcome"] = binary(it.Outcome)
	}
	return of
}

// deleteAfter returns when Time to Live may delete an item, in seconds: an hour after its times, so that a later fence is
// greater.
func deleteAfter(expires, tombstone int64) int64 {
	return max(expires, tombstone)/int64(time.Second/time.Microsecond) + int64(time.Hour/time.Second) + 1
}

// setLease sets the lease of a claim that begins, or is extended, now.
func (it *item) setLease(length, end int64) { it.beat, it.lease, it.leaseEnd = it.beat+1, length, end }

// sizeOf returns the length of an item as DynamoDB counts it, or a little more.
func sizeOf(of attributes) (n int) {
	for name, value := range of {
		n += len(name) + valueSize(value)
	}
	return n
}

func valueSize(value types.AttributeValue) int {
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return len(v.Value)/2 + 2
	case *types.AttributeValueMemberM:
		return 3 + len(v.Value) + sizeOf(v.Value)
	}
	return 0
}

// reader reads attributes, and notes if one is missing or has another type.
type reader struct {
	of        attributes
	isDamaged bool
}

func (r *reader) number(name string) int64 {
	v, ok := r.of[name].(*types.AttributeValueMemberN)
	if !ok {
		r.isDamaged = true
		return 0
	}
	n, err := strconv.ParseInt(v.Value, 10, 64)
	r.isDamaged = r.isDamaged || err != nil
	return n
}

func (r *reader) text(name string) string {
	v, ok := r.of[name].(*types.AttributeValueMemberS)
	if !ok {
		r.isDamaged = true
		return ""
	}
	return v.Value
}

func (r *reader) binary(name string) []byte {
	v, ok := r.of[name].(*types.AttributeValueMemberB)
	if !ok {
		r.isDamaged = true
		return nil
	}
	return record.NotNull(v.Value)
}

// optional returns nil if there is no such attribute.
func (r *reader) optional(name string) []byte {
	if r.of[name] == nil {
		return nil
	}
	return r.binary(name)
}

// binaries returns nil if there is no such attribute.
func (r *reader) binaries(name string) map[string][]byte {
	if r.of[name] == nil {
		return nil
	}
	v, ok := r.of[name].(*types.AttributeValueMemberM)
	if !ok {
		r.isDamaged = true
		return nil
	}
	all := make(map[string][]byte, len(v.Value))
	in := reader{of: v.Value}
	for escaped := range v.Value {
		name, err := url.QueryUnescape(escaped)
		all[name] = in.binary(escaped)
		r.isDamaged = r.isDamaged || err != nil
	}
	r.isDamaged = r.isDamaged || in.isDamaged
	return all
}
