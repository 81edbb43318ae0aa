package dynamostore

import (
	"context"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/internal/record"
)

// scanBatch is how many items one request of Scan reads, so that it uses no more than a part of the table's capacity at a time.
const scanBatch = 100

// Look implements driver.Inspector.
func (s *Store) Look(ctx context.Context, name [32]byte) (driver.Record, error) {
	it, now, err := s.inspected(ctx, name)
	if err != nil {
		return driver.Record{}, err
	}
	return it.Inspect(now), nil
}

// inspected returns the item of a record for an operator, who also looks at items that are damaged.
func (s *Store) inspected(ctx context.Context, name [32]byte) (*item, int64, error) {
	it, err := s.read(ctx, name)
	if err != nil && it == nil {
		return nil, 0, err
	}
	now, err := s.now(ctx)
	if err != nil {
		return nil, 0, err
	}
	s.judge(it, now, s.sightings.note)
	return it, now, nil
}

// Scan implements driver.Inspector. It reads the whole table.
func (s *Store) Scan(ctx context.Context, filter driver.Filter, found func(driver.Record) bool) error {
	in := &dynamodb.ScanInput{TableName: &s.table, Limit: aws.Int32(scanBatch), ConsistentRead: aws.Bool(true)}
	if filter.Scope != nil {
		in.FilterExpression = aws.String(inScope)
		in.ExpressionAttributeValues = attributes{":scope": text(scopeOf(filter.Scope))}
	}
	for {
		var out *dynamodb.ScanOutput
		t, err := s.call(func() (_ middleware.Metadata, err error) {
			if out, err = s.client.Scan(ctx, in); err != nil {
				return middleware.Metadata{}, err
			}
			return out.ResultMetadata, nil
		})
		if err != nil {
			return s.explain(err)
		}
		now, err := s.now(ctx)
		if err != nil || !s.selects(out.Items, t, now, &filter, found) || len(out.LastEvaluatedKey) == 0 {
			return err
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// scopeOf returns the beginning of the ids of a scope's records.
func scopeOf(scope []byte) string {
	var name [32]byte
	copy(name[:], scope)
	before, _, _ := strings.Cut(string(driver.AppendRecordName(nil, name)), ".")
	return before + "."
}

// selects calls found for those items of a batch that the filter selects. It reports whether the scan goes on.
func (s *Store) selects(batch []attributes, t trip, now int64, filter *driver.Filter, found func(driver.Record) bool) bool {
	for _, of := range batch {
		name, ok := driver.ParseRecordName((&reader{of: of}).text("id"))
		if !ok {
			continue // no item of this package
		}
		it, _ := decodeAt(name, of, t)
		s.judge(it, now, s.sightings.find)
		if seen := it.Inspect(now); filter.Selects(&seen, time.UnixMicro(now)) && !found(seen) {
			return false
		}
	}
	return true
}

// Forget implements driver.Inspector. For an hour an item remains, which counts as absent, with the fence.
func (s *Store) Forget(ctx context.Context, seen driver.Record) error {
	it, err := s.read(ctx, seen.Name)
	if err != nil && it == nil {
		return err
	}
	return s.change(ctx, it, func(it *item, now int64) (hasChanged bool, err error) {
		if err := it.MayForget(&seen, now); err != nil {
			return false, err
		}
		isThere := it.IsThere(now) || it.Tombstone > now
		it.Record, it.steps = record.Record{Key: it.Key, Fence: it.Fence, Expires: now}, nil
		return isThere, nil
	})
}

// Steps implements driver.Inspector.
func (s *Store) Steps(ctx context.Context, name [32]byte) (map[string][]byte, error) {
	it, now, err := s.inspected(ctx, name)
	if err != nil || !it.IsThere(now) {
		return nil, err
	}
	return it.steps, nil
}

// Outcome implements driver.OutcomeReader.
func (s *Store) Outcome(ctx context.Context, name [32]byte) ([]byte, error) {
	it, now, err := s.inspected(ctx, name)
	if err != nil || it.State != record.Completed || !it.IsThere(now) {
		return nil, err
	}
	return record.NotNull(it.Outcome), nil
}
