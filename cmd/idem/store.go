package main

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/pgstore"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/sqlitestore"
)

// store is a connected store.
type store struct {
	driver.Store
	place string // such as `prefix "idem:"`
	close func()
	check func(context.Context) ([]driver.Finding, error)
	ping  func(context.Context) error // nil if the server responds

	growth    func(context.Context, time.Duration) ([]driver.Finding, error) // nil of PostgreSQL and SQLite
	migration *migration                                                     // nil of Redis and SQLite

	// elsewhere returns other prefixes or schemas in which this server has records.
	elsewhere func(context.Context) ([]string, error)
}

// open connects to the store that the flags and the environment name. The server is first called when it is needed.
func (p *program) open(cmd *cli.Command) (*store, error) {
	text, err := p.storeURL(cmd)
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(text)
	if err != nil {
		return nil, fail(badUsage, "the URL of the store cannot be read: %v", withoutURL(err))
	}
	if cmd.Duration("timeout") <= 0 {
		return nil, fail(badUsage, "--timeout must be positive")
	}
	switch at.Scheme {
	case "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster":
		if cmd.IsSet("schema") {
			return nil, fail(badUsage, "--schema is for PostgreSQL; Redis has --prefix")
		}
		return openRedis(at, cmd.String("prefix"), timeout(cmd.Duration("timeout")))
	case "sqlite":
		if cmd.IsSet("schema") || cmd.IsSet("prefix") {
			return nil, fail(badUsage, "--schema is for PostgreSQL and --prefix for Redis; SQLite has neither")
		}
		return openSQLite(at, cmd.Name == "proxy", timeout(cmd.Duration("timeout")))
	case "postgres", "postgresql":
		if cmd.IsSet("prefix") {
			return nil, fail(badUsage, "--prefix is for Redis; PostgreSQL has --schema")
		}
		return openPostgres(text, cmd.String("schema"), timeout(cmd.Duration("timeout")))
	}
	return nil, fail(badUsage, "no store has URLs that begin with %q", at.Scheme+"://")
}

// storeURL returns the URL of the store, which the flag or the environment has.
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

// hasPassword reports whether the text of a URL seems to have a password.
func hasPassword(text string) bool {
	_, rest, _ := strings.Cut(text, "://")
	authority, _, _ := strings.Cut(rest, "/")
	user, _, hasUser := strings.Cut(authority, "@")
	return hasUser && strings.Contains(user, ":") || strings.Contains(text, "password=")
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

// newRedisClient returns a client of one server, of a group with Sentinels, or of a Cluster.
func newRedisClient(at *url.URL, limit timeout) (client redis.UniversalClient, err error) {
	redis.SetLogger(silent{})
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
	if options.MasterName == "" {
		return nil, errors.New("the parameter master_name is missing")
	}
	setForCommand(&options.ContextTimeoutEnabled, &options.DialerRetries)
	return redis.NewFailoverClient(options), nil
}

// newClusterClient returns a client of a Cluster, with limit as the hook of each of its nodes.
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

// silent keeps the log of go-redis from the terminal.
type silent struct{}

// Printf does nothing.
func (silent) Printf(context.Context, string, ...any) {}

// searched is how many keys otherPrefixes asks for, so that it delays nobody.
const searched = 10_000

// otherPrefixes returns prefixes of records among the first keys of a server. In a Cluster it asks one master.
func otherPrefixes(ctx context.Context, client redis.UniversalClient, prefix string) (found []string, err error) {
	known := map[string]bool{prefix: true}
	var cursor uint64
	for range searched / 1000 {
		keys, next, err := client.Scan(ctx, cursor, "*{*.*}", 1000).Result()
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			start := len(key) - driver.RecordNameLength - 2
			if start < 0 || known[key[:start]] {
				continue
			}
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

// openSQLite returns the store in the file of a URL, such as sqlite:///var/lib/payments.db, or sqlite:payments.db in this directory.
// A proxy makes the file if it does not exist; the other subcommands look at what a service has made.
func openSQLite(at *url.URL, mayMake bool, limit timeout) (*store, error) {
	if at.Host != "" {
		return nil, fail(badUsage, "the URL of a file has three slashes, as in sqlite:///var/lib/payments.db")
	}
	options := []sqlitestore.Option{sqlitestore.Timeout(time.Duration(limit))}
	if !mayMake {
		options = append(options, sqlitestore.MustExist())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(limit))
	defer cancel()
	path := cmp.Or(at.Path, at.Opaque)
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

// openPostgres returns the store of a URL as pgx reads it.
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

// closePool closes a pool. If the server hangs, it waits for a second only, since the process ends anyway.
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

// otherSchemas returns the schemas of a database that have the tables of a store.
func otherSchemas(ctx context.Context, pool *pgxpool.Pool, schema string) (found []string, err error) {
	err = pool.QueryRow(ctx, `SELECT coalesce(array_agg(schemaname::text), '{}') FROM pg_tables t
		WHERE tablename = 'tombstone' AND schemaname <> $1
		AND EXISTS (SELECT FROM pg_tables r WHERE r.schemaname = t.schemaname AND r.tablename = 'checkpoint')`, schema).Scan(&found)
	return found, err
}
