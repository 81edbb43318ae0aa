package dynamostore_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/dynamostore"
)

// described replaces the responses to calls that describe the table.
func described(replies map[string]any) func(send transport) transport {
	return func(send transport) transport {
		return func(r *http.Request) (*http.Response, error) {
			if reply, ok := replies[callOf(r)]; ok {
				return respond(200, reply), nil
			}
			return send(r)
		}
	}
}

// object is an object of JSON.
type object = map[string]any

// schema describes a table with this partition key.
func schema(name, kind string) object {
	return object{
		"KeySchema":            []object{{"AttributeName": name, "KeyType": "HASH"}},
		"AttributeDefinitions": []object{{"AttributeName": name, "AttributeType": kind}},
	}
}

// replicated describes a global table.
func replicated(consistency string) object {
	table := schema("id", "S")
	table["Replicas"] = []object{{"RegionName": "eu-west-1"}, {"RegionName": "us-east-1"}}
	if consistency != "" {
		table["MultiRegionConsistency"] = consistency
	}
	return object{"Table": table}
}

func timeToLive(status, attribute string) object {
	return object{"TimeToLiveDescription": object{"TimeToLiveStatus": status, "AttributeName": attribute}}
}

func recovery(status string) object {
	return object{"ContinuousBackupsDescription": object{
		"ContinuousBackupsStatus": "ENABLED", "PointInTimeRecoveryDescription": object{"PointInTimeRecoveryStatus": status},
	}}
}

func TestCheckFindsWhatWeakensTheTable(t *testing.T) {
	t.Parallel()
	good := map[string]any{
		"DescribeTable": object{"Table": schema("id", "S")}, "DescribeTimeToLive": timeToLive("ENABLED", "delete_after"),
		"DescribeContinuousBackups": recovery("ENABLED"),
	}
	for name, bad := range map[string]struct {
		call  string
		reply object
		want  string // nothing if it is no finding
	}{
		"good":                         {want: ""},
		"another key":                  {"DescribeTable", object{"Table": schema("pk", "S")}, "KeySchema is pk HASH S"},
		"another type":                 {"DescribeTable", object{"Table": schema("id", "B")}, "KeySchema is id HASH B"},
		"a global table":               {"DescribeTable", replicated(""), "Replicas is 2, with eventual consistency"},
		"an eventual global table":     {"DescribeTable", replicated("EVENTUAL"), "Replicas is 2, with eventual consistency"},
		"a strong global table":        {"DescribeTable", replicated("STRONG"), ""},
		"no Time to Live":              {"DescribeTimeToLive", object{}, "TimeToLive is DISABLED"},
		"Time to Live that is off":     {"DescribeTimeToLive", timeToLive("DISABLED", ""), "TimeToLive is DISABLED"},
		"Time to Live of another kind": {"DescribeTimeToLive", timeToLive("ENABLED", "expires_at"), "TimeToLive is on expires_at"},
		"no recovery":                  {"DescribeContinuousBackups", recovery("DISABLED"), "PointInTimeRecovery is DISABLED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replies := map[string]any{bad.call: bad.reply}
			findings, err := sharedTable(t).store(through(described(good)), through(described(replies))).Check(ctx)
			require.NoError(t, err)
			if bad.want == "" {
				assert.Empty(t, findings)
				return
			}
			require.Len(t, findings, 1)
			assert.Contains(t, findings[0].String(), bad.want)
		})
	}
}

func TestCheckFindsAClockThatIsWrong(t *testing.T) {
	t.Parallel()
	for off, want := range map[time.Duration]int{0: 0, 7 * time.Hour: 1, -time.Minute: 1} {
		p := newProcess(t, off, through(described(map[string]any{
			"DescribeTimeToLive": timeToLive("ENABLED", "delete_after"),
		})))
		findings, err := p.Check(ctx)
		require.NoError(t, err)
		require.Len(t, findings, want, "%v", findings)
		if want > 0 {
			assert.Equal(t, "clock", findings[0].Setting)
		}
	}
}

func TestCheckOfATableThatIsNotThereIsAnError(t *testing.T) {
	t.Parallel()
	missing := sharedTable(t)
	missing.name = "another"
	_, err := missing.store().Check(ctx)
	assert.ErrorContains(t, err, "not in the Region")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = sharedTable(t).store().Check(ended)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestATableIsNotMadeTwice(t *testing.T) {
	t.Parallel()
	table := newTable(t)
	assert.ErrorContains(t, dynamostore.CreateTable(ctx, table.client(), table.name), table.name)
}

// DynamoDB may not know a table yet when it has just made it.
func TestATableThatCannotBeSeenYetIsAwaited(t *testing.T) {
	t.Parallel()
	client, looks := newTable(t).client, 0
	first := client(through(func(send transport) transport {
		return func(r *http.Request) (*http.Response, error) {
			if callOf(r) == "DescribeTable" {
				if looks++; looks == 1 {
					return respond(400, object{"__type": "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException"}), nil
				}
			}
			return send(r)
		}
	}))
	require.NoError(t, dynamostore.CreateTable(ctx, first, rand.Text()))
	assert.Greater(t, looks, 1)
}
