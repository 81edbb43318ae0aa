package pgstore

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed schema.sql
var schemaSQL string

// version is the version of the schema that schema.sql makes, from nothing or from version 1.
const version = 2

// Migrate makes the schema with the tables and functions of a Store, or upgrades those of an earlier version. It changes
// nothing if the schema has this version. Any number of processes may call it at once. Processes of the earlier version may
// run meanwhile: their calls succeed, and their records remain. If another transaction has locked a table of the store, such
// as a backup, Migrate retries every second until ctx ends. Each try waits at most 250 ms for the lock, so that other
// transactions do not queue behind it for longer.
//
// Migrate returns an error, and changes nothing, if the schema holds tables of these names that are not a store's, or a store
// of a later version. The role of pool must be allowed to make schemas in the database, or tables in the existing schema. To
// upgrade, it must own the tables.
func Migrate(ctx context.Context, pool *pgxpool.Pool, opts ...Option) error {
	o, err := newOptions(opts)
	if err != nil {
		return err
	}
	for { // READ COMMITTED, since after the wait for the advisory lock this transaction must see what the earlier one has made
		err = pgx.BeginTxFunc(ctx, pool, readCommitted, func(tx pgx.Tx) error { return migrate(ctx, tx, o.schema) })
		if codeOf(err) != "55P03" { // lock_not_available
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	if err != nil {
		return fmt.Errorf("pgstore: Migrate: %w", err)
	}
	return nil
}

// migrate makes or upgrades the schema in tx. An advisory lock lets one process at a time do that. migrate names no prepared
// statement, since a pooler may know the name already.
func migrate(ctx context.Context, tx pgx.Tx, schema string) error {
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", pgx.QueryExecModeExec, "pgstore "+schema); err != nil {
		return err
	}
	found, err := findVersion(ctx, tx, schema)
	if found == version || err != nil {
		return err
	}
	if err := makeSchema(ctx, tx, schema); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 250"); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, inSchema(schema))
	return err
}

// inSchema returns schema.sql for a schema.
func inSchema(schema string) string {
	return strings.ReplaceAll(schemaSQL, "idem.", quoted(schema)+".")
}

// SchemaSQL returns what Migrate applies, for those who apply it by hand, in one transaction. The schema must exist.
func SchemaSQL(opts ...Option) (string, error) {
	o, err := newOptions(opts)
	if err != nil {
		return "", err
	}
	return inSchema(o.schema), nil
}

// SchemaVersion returns the version of the store in the schema, 0 if there is none, and the version that Migrate makes. It
// changes nothing. Its error says why Migrate would refuse the schema.
func SchemaVersion(ctx context.Context, pool *pgxpool.Pool, opts ...Option) (found, latest int, err error) {
	o, err := newOptions(opts)
	if err != nil {
		return 0, version, err
	}
	err = pgx.BeginTxFunc(ctx, pool, readCommitted, func(tx pgx.Tx) error {
		found, err = findVersion(ctx, tx, o.schema)
		return err
	})
	if err != nil {
		return 0, version, fmt.Errorf("pgstore: SchemaVersion: %w", err)
	}
	return found, version, nil
}

// makeSchema makes the schema if it is missing.
func makeSchema(ctx context.Context, tx pgx.Tx, schema string) error {
	var exists bool
	err := tx.QueryRow(ctx, "SELECT to_regnamespace($1) IS NOT NULL", pgx.QueryExecModeExec, quoted(schema)).Scan(&exists)
	if !exists && err == nil {
		_, err = tx.Exec(ctx, "CREATE SCHEMA "+quoted(schema))
	}
	return err
}

// findVersion returns the version of the store in a schema, or 0 if there is none.
func findVersion(ctx context.Context, tx pgx.Tx, schema string) (found int, err error) {
	var tables, columns int
	if err := tx.QueryRow(ctx, countTables, pgx.QueryExecModeExec, schema).Scan(&tables, &columns); tables == 0 || err != nil {
		return 0, err
	}
	if tables != 4 || columns != 6 {
		return 0, fmt.Errorf("schema %q holds tables that have the names of a store's but are not: "+
			"name a schema that holds nothing else, with pgstore.Schema", schema)
	}
	err = tx.QueryRow(ctx, "SELECT coalesce(max(version), -1) FROM "+quoted(schema)+".store", pgx.QueryExecModeExec).Scan(&found)
	if found == -1 {
		return 0, fmt.Errorf("the store in schema %q has no version: its table store is empty, and the highest fence is lost; "+
			"insert (1, the highest fence of its records)", schema)
	}
	if err == nil && found != 1 && found != version {
		err = fmt.Errorf("the store in schema %q has version %d, and this package knows 1 and %d: "+
			"deploy the version of the package that made it, or one after that", schema, found, version)
	}
	return found, err
}

// countTables counts the tables in a schema that have the names of a store's tables, and those of their columns that exist in
// every version.
const countTables = `SELECT count(DISTINCT c.oid), count(a.attnum) FROM pg_class c
	LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped AND (c.relname, a.attname) IN (
		('store', 'version'), ('store', 'fence'), ('record', 'fingerprint'), ('record', 'lease_end'), ('checkpoint', 'step'),
		('tombstone', 'expires'))
	WHERE c.relnamespace = to_regnamespace(quote_ident($1)) AND c.relname IN ('store', 'record', 'checkpoint', 'tombstone')`
