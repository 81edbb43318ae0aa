package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// ttlAttribute is the attribute on which the table must have Time to Live.
const ttlAttribute = "delete_after"

// CreateTable makes a table that is billed by request, waits until it can be used, and sets Time to Live. It is for development
// and tests: in production make the table as you make others, with point-in-time recovery and deletion protection. CreateTable
// changes nothing and returns an error if there is a table of this name. A server without Time to Live is accepted.
func CreateTable(ctx context.Context, client *dynamodb.Client, table string) error {
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:            &table,
		BillingMode:          types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
	})
	if err != nil {
		return fmt.Errorf("dynamostore: CreateTable %q: %w", table, err)
	}
	if err := awaitTable(ctx, client, table); err != nil {
		return fmt.Errorf("dynamostore: CreateTable %q: %w", table, err)
	}
	_, err = client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName:               &table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(ttlAttribute), Enabled: aws.Bool(true)},
	})
	if err != nil && !isUnknown(err) {
		return fmt.Errorf("dynamostore: CreateTable %q: Time to Live: %w", table, err)
	}
	return nil
}

// awaitTable waits until a table is active. DynamoDB may not know yet the table that it has just made.
func awaitTable(ctx context.Context, client *dynamodb.Client, table string) error {
	for {
		out, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
		var missing *types.ResourceNotFoundException
		if isMissing := errors.As(err, &missing); !isMissing && (err != nil || out.Table.TableStatus == types.TableStatusActive) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// isUnknown reports whether a server does not know a call.
func isUnknown(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && (api.ErrorCode() == "UnknownOperationException" || api.ErrorCode() == "UnknownOperation")
}
