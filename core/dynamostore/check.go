package dynamostore

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/go-idem/idem/core/driver"
)

// maxSkew is how far the clock of this machine may be from that of DynamoDB before Check reports it.
const maxSkew = 30 * time.Second

// Check looks for settings of the table that can lose claims or outcomes, or keep records for ever. It returns one finding for
// each, and none if all is well. Call it at start-up. It writes nothing. An error means that Check could not read the settings. A
// finding is no error, because only the service knows which risks it accepts. What a server other than DynamoDB does not know is
// not checked.
func (s *Store) Check(ctx context.Context) ([]driver.Finding, error) {
	described, err := s.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &s.table})
	if err != nil {
		return nil, s.explain(err)
	}
	findings := append(checkSchema(described.Table), checkReplicas(described.Table)...)
	for _, check := range []func(context.Context) ([]driver.Finding, error){s.checkTimeToLive, s.checkBackups, s.checkClock} {
		found, err := check(ctx)
		if err != nil && !isUnknown(err) {
			return nil, err
		}
		findings = append(findings, found...)
	}
	return findings, nil
}

// checkSchema checks the primary key, without which no call works.
func checkSchema(table *types.TableDescription) []driver.Finding {
	found := ""
	for _, element := range table.KeySchema {
		for _, attribute := range table.AttributeDefinitions {
			if *attribute.AttributeName == *element.AttributeName {
				found += fmt.Sprintf("%s %s %s, ", *element.AttributeName, element.KeyType, attribute.AttributeType)
			}
		}
	}
	if found == "id HASH S, " {
		return nil
	}
	return []driver.Finding{{
		Setting: "KeySchema", Found: found[:max(0, len(found)-len(", "))], Why: "every call is refused",
		Fix: "create a table with a partition key named id, of type S, and without a sort key",
	}}
}

// checkReplicas checks what conditions mean in a global table.
func checkReplicas(table *types.TableDescription) []driver.Finding {
	if len(table.Replicas) == 0 || table.MultiRegionConsistency == types.MultiRegionConsistencyStrong {
		return nil
	}
	return []driver.Finding{{
		Setting: "Replicas", Found: fmt.Sprintf("%d, with eventual consistency", len(table.Replicas)),
		Why: "two Regions can claim one key at the same time, and the last write wins",
		Fix: "send all requests with the same keys to one Region, or create the table with multi-Region strong consistency",
	}}
}

// checkTimeToLive checks that DynamoDB deletes what has expired, and nothing else.
func (s *Store) checkTimeToLive(ctx context.Context) ([]driver.Finding, error) {
	out, err := s.client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &s.table})
	if err != nil {
		return nil, s.explain(err)
	}
	ttl, status, attribute := out.TimeToLiveDescription, types.TimeToLiveStatusDisabled, ""
	if ttl != nil {
		status = ttl.TimeToLiveStatus
		if ttl.AttributeName != nil {
			attribute = *ttl.AttributeName
		}
	}
	isOn := status == types.TimeToLiveStatusEnabled || status == types.TimeToLiveStatusEnabling
	switch {
	case isOn && attribute == ttlAttribute:
		return nil, nil
	case isOn:
		return []driver.Finding{{
			Setting: "TimeToLive", Found: "on " + attribute, Why: "items of expired records are not deleted, or others are",
			Fix: "set it on " + ttlAttribute,
		}}, nil
	}
	return []driver.Finding{{
		Setting: "TimeToLive", Found: string(status), Why: "items of expired records are kept and billed for ever",
		Fix: "set it on " + ttlAttribute,
	}}, nil
}

// checkBackups checks point-in-time recovery, since a table that is gone forgets all keys.
func (s *Store) checkBackups(ctx context.Context) ([]driver.Finding, error) {
	out, err := s.client.DescribeContinuousBackups(ctx, &dynamodb.DescribeContinuousBackupsInput{TableName: &s.table})
	if err != nil {
		return nil, s.explain(err)
	}
	recovery := types.PointInTimeRecoveryStatusDisabled
	if backups := out.ContinuousBackupsDescription; backups != nil && backups.PointInTimeRecoveryDescription != nil {
		recovery = backups.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus
	}
	if recovery == types.PointInTimeRecoveryStatusEnabled {
		return nil, nil
	}
	return []driver.Finding{{
		Setting: "PointInTimeRecovery", Found: string(recovery),
		Why: "a table that is deleted or damaged forgets all outcomes, and their keys run again", Fix: "enable it",
	}}, nil
}

// checkClock compares the clock of DynamoDB with that of this machine.
func (s *Store) checkClock(ctx context.Context) ([]driver.Finding, error) {
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	skew := s.clock.wall().Sub(time.UnixMicro(now))
	if skew.Abs() < maxSkew {
		return nil, nil
	}
	return []driver.Finding{{
		Setting: "clock", Found: fmt.Sprintf("%v from that of DynamoDB", skew.Round(time.Second)),
		Why: "one of the two is wrong: retentions follow that of DynamoDB, and requests are refused if this machine's is too wrong",
		Fix: "synchronise this machine with a time server, and send requests to DynamoDB without a proxy that sets their Date",
	}}, nil
}
