package dynamostore_test

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/dynamostore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/dynalite"
	"github.com/go-idem/idem/internal/testclock"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(ownerURL); url != "" {
		panic(hangs(url, os.Getenv(ownerTable), os.Getenv(ownerKey)))
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/go-idem/idem/internal/tied.startAll"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

var ctx = context.Background()

// impatient sends a request three times without a pause.
var impatient = retry.NewStandard(func(o *retry.StandardOptions) {
	o.RateLimiter = ratelimit.None
	o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
})

// newClient returns a client of a server on this machine.
func newClient(url string, changes ...func(*dynamodb.Options)) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: &url, Retryer: impatient,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	}, changes...)
}

// table is a table, and how to reach it.
type table struct {
	name   string
	client func(changes ...func(*dynamodb.Options)) *dynamodb.Client
}

// newTable makes a table of a dynalite, for this test alone.
func newTable(tb testing.TB) table {
	tb.Helper()
	t := table{name: rand.Text(), client: func(changes ...func(*dynamodb.Options)) *dynamodb.Client {
		return newClient(dynalite.Shared(tb).URL, changes...)
	}}
	require.NoError(tb, dynamostore.CreateTable(ctx, t.client(), t.name))
	return t
}

var shared struct {
	sync.Mutex
	table table
}

// sharedTable returns the table of tests that use keys of their own: one of a dynalite, or the one in $IDEM_DYNAMODB on the real
// service, as region/table, with credentials in $AWS_ACCESS_KEY_ID, $AWS_SECRET_ACCESS_KEY and $AWS_SESSION_TOKEN.
func sharedTable(tb testing.TB) table {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if region, name, isReal := strings.Cut(os.Getenv("IDEM_DYNAMODB"), "/"); isReal {
		return table{name: name, client: func(changes ...func(*dynamodb.Options)) *dynamodb.Client {
			return dynamodb.New(dynamodb.Options{Region: region, Credentials: aws.CredentialsProviderFunc(environment)}, changes...)
		}}
	}
	if shared.table.name == "" {
		shared.table = newTable(tb)
	}
	t := shared.table
	t.client = func(changes ...func(*dynamodb.Options)) *dynamodb.Client {
		return newClient(dynalite.Shared(tb).URL, changes...)
	}
	return t
}

// environment returns the credentials of the environment.
func environment(context.Context) (aws.Credentials, error) {
	return aws.Credentials{
		AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
		SessionToken: os.Getenv("AWS_SESSION_TOKEN"),
	}, nil
}

// store returns a store in the table.
func (t table) store(changes ...func(*dynamodb.Options)) *dynamostore.Store {
	return dynamostore.New(t.client(changes...), t.name)
}

// never is a margin with which leases are judged by watching alone.
const never = 50 * 365 * 24 * time.Hour

// withClock returns a store whose clock the test moves.
func withClock(tb testing.TB, leaseMargin time.Duration, changes ...func(*dynamodb.Options)) storetest.Harness {
	tb.Helper()
	store, c := sharedTable(tb).store(changes...), testclock.New(time.Now())
	store.SetClock(c.Now, leaseMargin)
	return storetest.Harness{Store: store, Advance: c.Advance, MaxOutcome: dynamostore.MaxOutcome}
}

func begin(tb testing.TB, store driver.Store, c driver.Claim) driver.Entry {
	tb.Helper()
	entry, err := store.Begin(ctx, c)
	require.NoError(tb, err)
	return entry
}

// claimed returns the claim of a new key after its Begin.
func claimed(tb testing.TB, store driver.Store, lease time.Duration) driver.Claim {
	tb.Helper()
	c := storetest.NewClaim(lease, time.Hour)
	entry := begin(tb, store, c)
	require.Equal(tb, driver.Claimed, entry.State)
	c.Fence, c.Attempt, c.Takeover, c.Operation = entry.Fence, entry.Attempt, entry.Takeover, entry.Operation
	return c
}

// rival returns the claim of another run of the same request.
func rival(c driver.Claim) driver.Claim {
	rand.Read(c.Owner[:])
	c.Fence, c.Attempt, c.Takeover, c.Operation = 0, 0, false, 0
	return c
}
