package main

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/dynamostore"
	"github.com/go-idem/idem/core/pgstore"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/sqlitestore"
)

// store is a connected store. The functions hide which of the four databases it is; growth and migration are nil where the
// database has nothing of the kind.
type store struct {
	driver.Store
	place string // such as `prefix "idem:"`
	close func()
	check func(context.Context) ([]driver.Finding, error)
	ping  func(context.Context) error // nil if the server responds

	growth    func(context.Context, time.Duration) ([]driver.Finding, error) // only of Redis
	migration *migration                                                     // only of PostgreSQL

	// elsewhere returns other prefixes or schemas in which this server has records.
	elsewhere func(context.Context) ([]string, error)
}

// open connects to the store that the flags and the environment name. The server is first called when it is needed; only a
// file of SQLite is opened at once. A flag of another kind of store is refused, because it would be ignored and its user
// would look in the wrong place.
func (p *program) open(cmd *cli.Command) (*store, error) {
	text, err := p.storeURL(cmd)
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(text)
	if err != nil || isSplit(at) { // an error quotes a part of the URL, such as a password that was taken for a port
		return nil, fail(badUsage, "the URL of the store cannot be read: it must begin like redis://host:6379, and characters such as "+
			"/ ? # %% and @ in its password must be percent-encoded")
	}
	if cmd.Duration("timeout") <= 0 {
		return nil, fail(badUsage, "--timeout must be positive")
	}
	switch at.Scheme {
	case "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster":
		if cmd.IsSet("schema") {
			return nil, fail(badUsage, "--schema is for PostgreSQL; Redis has --prefix")
		}
		if _, behind, _ := strings.Cut(cmd.String("prefix"), "{"); strings.HasPrefix(behind, "}") && strings.HasSuffix(at.Scheme, "+cluster") {
			return nil, fail(badUsage, "the first braces of --prefix are empty; no service has such a prefix on a Cluster")
		}
		return openRedis(at, cmd.String("prefix"), timeout(cmd.Duration("timeout")))
	case "sqlite":
		if cmd.IsSet("schema") || cmd.IsSet("prefix") {
			return nil, fail(badUsage, "--schema is for PostgreSQL and --prefix for Redis; SQLite has neither")
		}
		return openSQLite(at, cmd.Name == "proxy", timeout(cmd.Duration("timeout")))
	case "dynamodb":
		if cmd.IsSet("schema") || cmd.IsSet("prefix") {
			return nil, fail(badUsage, "--schema is for PostgreSQL and --prefix for Redis; DynamoDB has neither")
		}
		return openDynamoDB(at, timeout(cmd.Duration("timeout")))
	case "postgres", "postgresql":
		if cmd.IsSet("prefix") {
			return nil, fail(badUsage, "--prefix is for Redis; PostgreSQL has --schema")
		}
		return openPostgres(text, cmd.String("schema"), timeout(cmd.Duration("timeout")))
	}
	return nil, fail(badUsage, "no store has URLs that begin with %q", at.Scheme+"://")
}

// storeURL returns the URL of the store, which the flag or the environment has. A password in the flag is refused, because
// every user of the machine sees the arguments of a process. The flag has precedence, so that one call can look at another
// store.
func (p *program) storeURL(cmd *cli.Command) (string, error) {
	text := cmd.String("store")
	if hasPassword(text) {
		return "", fail(badUsage, "--store has a password, which every user of this machine can see: put the URL into $IDEM_STORE")
	}
	if text = cmp.Or(text, p.getenv("IDEM_STORE")); text == "" {
		return "", fail(badUsage, "which store? Set --store or $IDEM_STORE to a URL, such as redis://127.0.0.1:6379")
	}
	return text, nil
}

// hasPassword reports whether the text of a URL seems to have a password. It looks at the text, and not at a parsed URL,
// since a URL that cannot be parsed may have one too, for example because a slash in the password is not encoded. A doubt is
// a yes.
func hasPassword(text string) bool {
	_, rest, _ := strings.Cut(text, "://")
	host := strings.LastIndex(rest, "@") + 1
	return strings.Contains(rest[:host], ":") || strings.Contains(text, "password=")
}

// isSplit reports whether a / ? or # in a password that is not encoded seems to have ended the authority of a URL. The rest of the
// password is then taken for a path or a parameter, which messages quote. A file may have an @ in its name.
func isSplit(at *url.URL) bool {
	for name := range at.Query() {
		if strings.Contains(name, "@") {
			return true
		}
	}
	return at.Scheme != "sqlite" && strings.Contains(at.EscapedPath()+at.EscapedFragment(), "@")
}

// withoutURL returns what is wrong with a URL, without the URL, which may have a password.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// openRedis returns the store of a URL as go-redis reads it. What follows the plus in its scheme says what kind of client it is
// for.
func openRedis(at *url.URL, prefix string, limit timeout) (*store, error) {
	client, err := newRedisClient(at, limit)
	if err != nil {
		return nil, fail(badUsage, "the URL of the store cannot be read: %v", withoutURL(err))
	}
	return &store{
		Store: redisstore.New(client, redisstore.Prefix(prefix)),
		place: "prefix " + strconv.Quote(prefix),
		close: func() { _ = client.Close() },
		check: func(ctx context.Context) ([]driver.Finding, error) {
			return redisstore.Check(ctx, client, redisstore.Prefix(prefix))
		},
		growth: func(ctx context.Context, wait time.Duration) ([]driver.Finding, error) {
			return redisstore.CheckGrowth(ctx, client, wait)
		},
		ping:      func(ctx context.Context) error { return pong(client.Ping(ctx).Err()) },
		elsewhere: func(ctx context.Context) ([]string, error) { return otherPrefixes(ctx, client, prefix) },
	}, nil
}

// pong returns nil if the reply to a PING shows that the server executes commands. A user that is not allowed to send PING may be
// allowed all that the store needs.
func pong(err error) error {
	if redis.HasErrorPrefix(err, "NOPERM") {
		return nil
	}
	return err
}

// newRedisClient returns a client of one server, of a group with Sentinels, or of a Cluster. The parsers of go-redis take the
// same schemes for all three, so the kind stands behind a plus in the scheme.
func newRedisClient(at *url.URL, limit timeout) (client redis.UniversalClient, err error) {
	plain := *at
	scheme, kind, _ := strings.Cut(at.Scheme, "+")
	plain.Scheme = scheme
	switch kind {
	case "sentinel":
		client, err = newSentinelClient(plain.String())
	case "cluster":
		client, err = newClusterClient(plain.String(), limit)
	default:
		client, err = newServerClient(plain.String())
	}
	if err != nil {
		return nil, err
	}
	client.AddHook(limit)
	return client, nil
}

// setForCommand sets two options of any client for a command: somebody waits for it, so a call ends with its context, and the
// client dials once for each try of a call. go-redis would dial five times.
func setForCommand(contextTimeoutEnabled *bool, dialerRetries *int) {
	*contextTimeoutEnabled, *dialerRetries = true, cmp.Or(*dialerRetries, 1)
}

// newServerClient returns a client of one server.
func newServerClient(text string) (redis.UniversalClient, error) {
	options, err := redis.ParseURL(text)
	if err != nil {
		return nil, err
	}
	setForCommand(&options.ContextTimeoutEnabled, &options.DialerRetries)
	return redis.NewClient(options), nil
}

// newSentinelClient returns a client of the primary that the Sentinels name.
func newSentinelClient(text string) (redis.UniversalClient, error) {
	options, err := redis.ParseFailoverURL(text)
	if err != nil {
		return nil, err
	}
	// The Sentinels must be asked for a group by its name, which the parser does not demand.
	if options.MasterName == "" {
		return nil, errors.New("the parameter master_name is missing")
	}
	setForCommand(&options.ContextTimeoutEnabled, &options.DialerRetries)
	return redis.NewFailoverClient(options), nil
}

// newClusterClient returns a client of a Cluster, with limit as the hook of each of its nodes. The client learns of a
// failover by reading the slots again, here every two seconds, because somebody waits. The nodes need the hook of their own,
// since the commands of a scan go to each node and not through the client of the Cluster.
func newClusterClient(text string, limit timeout) (redis.UniversalClient, error) {
	options, err := redis.ParseClusterURL(text)
	if err != nil {
		return nil, err
	}
	setForCommand(&options.ContextTimeoutEnabled, &options.DialerRetries)
	options.ClusterStateReloadInterval = 2 * time.Second
	client := redis.NewClusterClient(options)
	client.OnNewNode(func(node *redis.Client) { node.AddHook(limit) })
	return client, nil
}

// silent keeps the log of go-redis from the terminal. The command reports the error of each call itself; what the client logs
// of its connections meanwhile would stand between the lines of a result.
type silent struct{}

// Printf does nothing.
func (silent) Printf(context.Context, string, ...any) {}

// searched is how many keys otherPrefixes asks for, so that it delays nobody.
const searched = 10_000

// otherPrefixes returns prefixes of records among the first keys of a server. In a Cluster it asks one master. A record is
// recognised by the form of its name, so keys of other programs do no harm. What it finds is a hint for an operator who has
// found nothing, so it need not be complete.
func otherPrefixes(ctx context.Context, client redis.UniversalClient, prefix string) (found []string, err error) {
	known := map[string]bool{prefix: true}
	var cursor uint64
	for range searched / 1000 {
		// The pattern leaves most keys of other programs out already in the server.
		keys, next, err := client.Scan(ctx, cursor, "*{*.*}", 1000).Result()
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			start := len(key) - driver.RecordNameLength - 2
			if start < 0 || known[key[:start]] {
				continue
			}
			// The name stands in braces at the end of the key, and what comes before it is a prefix.
			if _, isRecord := driver.ParseRecordName(key[start+1 : len(key)-1]); isRecord {
				known[key[:start]] = true
				found = append(found, key[:start])
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	return found, nil
}

// openSQLite returns the store in the file of a URL, such as sqlite:///var/lib/payments.db, or sqlite:payments.db in this
// directory. A proxy makes the file if it does not exist; the other subcommands look at what a service has made. Otherwise a
// wrong path would make an empty file, in which no record is found. So what is no part of the path is refused: a host, which
// follows two slashes, and what follows a ? or #.
func openSQLite(at *url.URL, mayMake bool, limit timeout) (*store, error) {
	if at.Host != "" || at.RawQuery != "" || at.Fragment != "" {
		return nil, fail(badUsage, "the URL of a file has three slashes and no parameters, as in sqlite:///var/lib/payments.db; "+
			"a ? or # in a name is %%3F or %%23")
	}
	options := []sqlitestore.Option{sqlitestore.Timeout(time.Duration(limit))}
	if !mayMake {
		options = append(options, sqlitestore.MustExist())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(limit))
	defer cancel()
	relative, err := url.PathUnescape(at.Opaque)
	if err != nil {
		return nil, fail(badUsage, "the URL of the store cannot be read: %v", err)
	}
	path := cmp.Or(at.Path, relative)
	found, err := sqlitestore.Open(ctx, path, options...)
	if err != nil {
		return nil, fail(storeFailed, "%v; %s", err, nothingChanged)
	}
	return &store{
		Store:     found,
		place:     "file " + strconv.Quote(path),
		close:     func() { _ = found.Close() },
		check:     found.Check,
		ping:      found.DB().PingContext,
		elsewhere: func(context.Context) ([]string, error) { return nil, nil },
	}, nil
}

// openDynamoDB returns the store in the table of a URL, such as dynamodb://payments?region=eu-central-1. The environment and
// the files of the SDK have the credentials, and the Region if the URL has none. endpoint is for other servers. A parameter
// that is unknown is refused, because a misspelt endpoint would send the calls to AWS.
func openDynamoDB(at *url.URL, limit timeout) (*store, error) {
	query := at.Query()
	region, endpoint := query.Get("region"), query.Get("endpoint")
	query.Del("region")
	query.Del("endpoint")
	if at.Host == "" || at.Path != "" || len(query) > 0 || at.User != nil {
		return nil, fail(badUsage, "the URL of a table is dynamodb://TABLE?region=REGION, with endpoint=URL for another server")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(limit))
	defer cancel()
	config, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(region), awsconfig.WithAPIOptions(limit.middleware()))
	if err != nil {
		return nil, fail(badUsage, "the configuration of the AWS SDK cannot be read: %v", err)
	}
	if config.Region == "" {
		return nil, fail(badUsage, "which Region? Add ?region= to the URL, or set $AWS_REGION")
	}
	found := dynamostore.New(dynamodb.NewFromConfig(config, func(o *dynamodb.Options) {
		if endpoint != "" {
			o.BaseEndpoint = &endpoint
		}
	}), at.Host)
	return &store{
		Store: found,
		place: "table " + strconv.Quote(at.Host),
		close: func() {},
		check: found.Check,
		ping: func(ctx context.Context) error {
			// A read of one item that does not exist is enough: no record has this name.
			_, err := found.Look(ctx, [32]byte{})
			return err
		},
		elsewhere: func(context.Context) ([]string, error) { return nil, nil },
	}, nil
}

// openPostgres returns the store of a URL as pgx reads it. The tracer of the connections bounds each statement.
func openPostgres(text, schema string, limit timeout) (*store, error) {
	if !pgstore.IsSchemaName(schema) {
		return nil, fail(badUsage, "--schema %q is not a name of 1 to 50 lower-case letters, digits and underscores", schema)
	}
	config, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, fail(badUsage, "the URL of the store cannot be read: %v", withoutURL(err))
	}
	config.ConnConfig.ConnectTimeout, config.ConnConfig.Tracer = time.Duration(limit), limit
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, fail(badUsage, "the URL of the store cannot be used: %v", err)
	}
	return &store{
		Store: pgstore.New(pool, pgstore.Schema(schema)),
		place: "schema " + strconv.Quote(schema),
		close: func() { closePool(pool) },
		check: func(ctx context.Context) ([]driver.Finding, error) {
			return pgstore.Check(ctx, pool, pgstore.Schema(schema))
		},
		migration: &migration{
			version: func(ctx context.Context) (int, int, error) {
				return pgstore.SchemaVersion(ctx, pool, pgstore.Schema(schema))
			},
			up: func(ctx context.Context) error { return pgstore.Migrate(ctx, pool, pgstore.Schema(schema)) },
		},
		ping:      pool.Ping,
		elsewhere: func(ctx context.Context) ([]string, error) { return otherSchemas(ctx, pool, schema) },
	}, nil
}

// closePool closes a pool. If the server hangs, it waits for a second only, since the process ends anyway. pgxpool waits in
// Close until every connection has been returned.
func closePool(pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(time.Second):
	}
}

// otherSchemas returns the schemas of a database that have the tables of a store. Two tables are looked for, since one name
// alone may belong to another program.
func otherSchemas(ctx context.Context, pool *pgxpool.Pool, schema string) (found []string, err error) {
	err = pool.QueryRow(ctx, `SELECT coalesce(array_agg(schemaname::text), '{}') FROM pg_tables t
		WHERE tablename = 'tombstone' AND schemaname <> $1
		AND EXISTS (SELECT FROM pg_tables r WHERE r.schemaname = t.schemaname AND r.tablename = 'checkpoint')`, schema).Scan(&found)
	return found, err
}
