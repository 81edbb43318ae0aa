package pgstore

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed schema.sql
var schemaSQL string

// Migrate makes the schema, with the tables and functions of a Store, unless they are there already. Any number of processes
// may call it at once. The role of pool must be allowed to make schemas in the database, or tables in one that exists.
func Migrate(ctx context.Context, pool *pgxpool.Pool, opts ...Option) error {
	o, err := newOptions(opts)
	if err != nil {
		return err
	}
	committed := pgx.TxOptions{IsoLevel: pgx.ReadCommitted} // who waited for the lock must see what was made under it
	err = pgx.BeginTxFunc(ctx, pool, committed, func(tx pgx.Tx) error { return migrate(ctx, tx, o.schema) })
	if err != nil {
		return fmt.Errorf("pgstore: Migrate: %w", err)
	}
	return nil
}

func migrate(ctx context.Context, tx pgx.Tx, schema string) error {
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", "pgstore "+schema); err != nil {
		return err
	}
	var made, filled bool
	err := tx.QueryRow(ctx, "SELECT to_regnamespace($1) IS NOT NULL, to_regclass($1 || '.store') IS NOT NULL", quoted(schema)).Scan(&made, &filled)
	if err != nil || filled {
		return err
	}
	if !made {
		if _, err := tx.Exec(ctx, "CREATE SCHEMA "+quoted(schema)); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, strings.ReplaceAll(schemaSQL, "idem.", quoted(schema)+"."))
	return err
}
