package main

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/dynamostore"
	"github.com/go-idem/idem/internal/dynalite"
)

// newTable makes a table of a server that is compatible with DynamoDB. It returns the URL of the table, and a store in it.
func newTable(t *testing.T, server *dynalite.Server) (text string, store *dynamostore.Store) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	loaded, err := config.LoadDefaultConfig(t.Context(), config.WithRegion("eu-central-1"), config.WithBaseEndpoint(server.URL))
	require.NoError(t, err)
	client := dynamodb.NewFromConfig(loaded)
	require.NoError(t, dynamostore.CreateTable(t.Context(), client, "payments"))
	return "dynamodb://payments?region=eu-central-1&endpoint=" + url.QueryEscape(server.URL), dynamostore.New(client, "payments")
}

func TestTheCommandOpensATableOfDynamoDB(t *testing.T) {
	server := dynalite.Start(t)
	table, store := newTable(t, server)
	assert.Equal(t, http.StatusOK, send(handler(store, nil), "alice", "K", "").Code)
	shown := call(t, table, nil, "show", "alice", "K")
	assert.Zero(t, shown.code)
	assert.Contains(t, shown.stdout, "completed")
	counted := call(t, table, nil, "stats")
	assert.Zero(t, counted.code)
	assert.Contains(t, counted.stdout, "completed")

	checked := call(t, table, nil, "doctor")
	assert.Equal(t, finding, checked.code)
	assert.Contains(t, checked.stdout, "TimeToLive is DISABLED", "dynalite has none")
	assert.NotContains(t, checked.stdout, "KeySchema")

	forgotten := call(t, table, nil, "forget", "alice", "K", "--yes", "--reason", "test", "--who", "ops")
	assert.Zero(t, forgotten.code)
	assert.Equal(t, finding, call(t, table, nil, "show", "alice", "K").code)

	missing := call(t, "dynamodb://another"+table[len("dynamodb://payments"):], nil, "show", "alice", "K")
	assert.Equal(t, storeFailed, missing.code)
	assert.Contains(t, missing.stderr, "the store refuses; nothing was changed: ")
	assert.Contains(t, missing.stderr, "the table is not in the Region")

	require.NoError(t, server.Stop())
	defer func() { assert.NoError(t, server.Continue()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	p := &program{getenv: func(string) string { return "" }}
	hanging := callWith(t, ctx, p, "show", "alice", "K", "--timeout", "300ms", "--store", table)
	assert.Equal(t, storeFailed, hanging.code)
	assert.NoError(t, ctx.Err(), "--timeout has not ended the call")
}

func TestAURLOfATableHasATableAndARegion(t *testing.T) {
	for _, wrong := range []string{
		"dynamodb://", "dynamodb://payments/idem?region=eu-central-1", "dynamodb://payments?region=eu-central-1&prefix=x",
		"dynamodb://key:hush@payments?region=eu-central-1",
	} {
		got := call(t, wrong, nil, "show", "alice", "K")
		assert.Equal(t, badUsage, got.code, wrong)
		assert.NotContains(t, got.stderr, "hush")
	}
	got := call(t, "dynamodb://payments?region=eu-central-1", nil, "show", "alice", "K", "--schema", "x")
	assert.Equal(t, badUsage, got.code)
	assert.Contains(t, got.stderr, "DynamoDB has neither")
}
