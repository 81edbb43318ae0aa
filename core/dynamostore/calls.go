package dynamostore

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/go-idem/idem/internal/record"
)

// maxItem is how long an item may be. An item with steps leaves reserve bytes for what others note in it, and so does one with an
// outcome for its other attributes.
const (
	maxItem    = 400 << 10
	reserve    = 4 << 10
	maxOutcome = maxItem - reserve
)

// trip is a request to DynamoDB and its response, by the local clock.
type trip struct{ sent, received time.Time }

// call sends a request, and reads the clock of DynamoDB from the response. do returns the metadata of a response without an
// error.
func (s *Store) call(do func() (middleware.Metadata, error)) (t trip, err error) {
	t.sent = s.clock.local()
	metadata, err := do()
	t.received = s.clock.local()
	if date, ok := dateOf(metadata, err); ok {
		s.clock.learn(t.sent, t.received, date)
	}
	return t, err
}

// dateOf returns the Date header field of a response.
func dateOf(metadata middleware.Metadata, err error) (date time.Time, ok bool) {
	if err == nil {
		date, ok = awsmiddleware.GetServerTime(metadata)
		return date, ok && !date.IsZero()
	}
	var response *awshttp.ResponseError
	if !errors.As(err, &response) || response.HTTPResponse() == nil {
		return date, false
	}
	date, err = http.ParseTime(response.HTTPResponse().Header.Get("Date"))
	return date, err == nil
}

// put writes an item, if the one in the table is still what it was made from. Otherwise put returns the one in the table.
func (s *Store) put(ctx context.Context, it *item) (current *item, err error) {
	in := &dynamodb.PutItemInput{
		TableName: &s.table, Item: it.encode(), ConditionExpression: aws.String(isNew),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if it.isStored {
		in.ConditionExpression, in.ExpressionAttributeValues = aws.String(isUnchanged), it.unchanged()
	}
	if size := sizeOf(in.Item); size > maxItem {
		return nil, tooLarge("the record", size, maxItem, shortenOutcome)
	}
	t, err := s.call(func() (middleware.Metadata, error) {
		out, err := s.client.PutItem(ctx, in)
		if err != nil {
			return middleware.Metadata{}, err
		}
		return out.ResultMetadata, nil
	})
	if err != nil {
		current, err = s.conflict(ctx, it.name(), t, err)
		if err != nil || !reflect.DeepEqual(current.of, in.Item) {
			return current, err
		} // else the client has sent the write again after its reply was lost
	}
	if it.State == record.Started {
		s.sightings.note(it.name(), sighting{fence: it.Fence, beat: it.beat, since: t.received})
	}
	return nil, nil
}

// update sends an update, and returns nil if it has taken effect. If its condition is not met, update returns the item.
func (s *Store) update(ctx context.Context, u *update) (current *item, err error) {
	in := &dynamodb.UpdateItemInput{
		TableName: &s.table, Key: key(u.name), UpdateExpression: &u.expression, ConditionExpression: &u.condition,
		ExpressionAttributeValues: u.values, ReturnValues: types.ReturnValueUpdatedNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	var out *dynamodb.UpdateItemOutput
	t, err := s.call(func() (middleware.Metadata, error) {
		if out, err = s.client.UpdateItem(ctx, in); err != nil {
			return middleware.Metadata{}, err
		}
		return out.ResultMetadata, nil
	})
	if err != nil {
		return s.conflict(ctx, u.name, t, err)
	}
	if changed := (&reader{of: out.Attributes}); changed.of["beat"] != nil {
		s.sightings.note(u.name, sighting{fence: u.fence, beat: changed.number("beat"), since: t.received})
	}
	return nil, nil
}

// conflict returns the item in the table after a write that has failed, if that is due to the item.
func (s *Store) conflict(ctx context.Context, name [32]byte, t trip, err error) (*item, error) {
	var failed *types.ConditionalCheckFailedException
	var replicated *types.ReplicatedWriteConflictException
	switch {
	case errors.As(err, &failed) && len(failed.Item) > 0:
		return decodeAt(name, failed.Item, t)
	case errors.As(err, &failed), errors.As(err, &replicated):
		return s.read(ctx, name)
	}
	return nil, s.explain(err)
}

// read returns the item of a record, which may not exist. It also returns an item that is unreadable, with the error.
func (s *Store) read(ctx context.Context, name [32]byte) (*item, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var out *dynamodb.GetItemOutput
	in := &dynamodb.GetItemInput{TableName: &s.table, Key: key(name), ConsistentRead: aws.Bool(true)}
	t, err := s.call(func() (_ middleware.Metadata, err error) {
		if out, err = s.client.GetItem(ctx, in); err != nil {
			return middleware.Metadata{}, err
		}
		return out.ResultMetadata, nil
	})
	if err != nil {
		return nil, s.explain(err)
	}
	return decodeAt(name, out.Item, t)
}

// probe reads the clock of DynamoDB, and an item that does not exist.
func (s *Store) probe(ctx context.Context) error {
	_, err := s.read(ctx, [32]byte{})
	return err
}

// decodeAt decodes an item that a trip has read.
func decodeAt(name [32]byte, of attributes, t trip) (*item, error) {
	it, err := decode(name, of)
	it.of, it.sent, it.received = of, t.sent, t.received
	return it, err
}
