package main

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"io/fs"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// openDatabase connects to the database and applies the migrations. Processes that start together take turns.
func openDatabase(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil { // err is not returned, because it may quote the password.
		return nil, errors.New("DATABASE_URL is not a URL such as postgres://user:password@host:5432/orders")
	}
	// A relay process that hangs in the middle of a batch must not lock its events for ever. The URL may have another timeout.
	const timeout = "idle_in_transaction_session_timeout"
	cfg.ConnConfig.RuntimeParams[timeout] = cmp.Or(cfg.ConnConfig.RuntimeParams[timeout], "15s")
	db, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, db); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// migrate applies the migrations under a lock.
func migrate(ctx context.Context, db *pgxpool.Pool) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60)) // one try a second, for a minute
	if err != nil {
		return err
	}
	sql := stdlib.OpenDBFromPool(db)
	defer sql.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, sql, files, goose.WithSessionLocker(locker))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}
