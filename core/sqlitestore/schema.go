package sqlitestore

import (
	"context"
	_ "embed"
	"fmt"
)

//go:embed schema.sql
var schemaSQL string

// version is the version of the schema that schema.sql makes.
const version = 1

// makeSchema makes the write-ahead log and the tables, unless they exist. It changes nothing in a file that has the tables of a
// later version.
func (s *Store) makeSchema(ctx context.Context) error {
	if err := s.makeLog(ctx); err != nil {
		return err
	}
	t, err := s.beginTransaction(ctx)
	if err != nil {
		return s.explain(err)
	}
	defer t.release()
	found, err := t.schemaVersion()
	switch {
	case err != nil:
		return s.explain(err)
	case found == version:
		return nil
	case found != 0:
		return fmt.Errorf("sqlitestore: Open: %s has tables of version %d, and this package knows version %d: deploy the "+
			"version of the package that made them, or one after that", s.path, found, version)
	}
	if err := t.execute(schemaSQL); err != nil {
		return s.explain(err)
	}
	return s.explain(t.commit())
}

// makeLog gives the file a write-ahead log, in which readers and a writer do not wait for each other.
func (s *Store) makeLog(ctx context.Context) error {
	conn, err := s.writer.Conn(ctx)
	if err != nil {
		return s.explain(err)
	}
	defer func() { _ = conn.Close() }()
	var mode string
	err = retryBusy(ctx, func() error { return conn.QueryRowContext(background, "PRAGMA journal_mode = WAL").Scan(&mode) })
	if err == nil && mode != "wal" {
		err = fmt.Errorf("sqlitestore: Open: %s cannot have a write-ahead log, but %q: put it on a file system of this machine",
			s.path, mode)
	}
	return s.explain(err)
}

// schemaVersion returns the version of the tables in the file, or 0 if there are none.
func (t *transaction) schemaVersion() (found int, err error) {
	var tables int
	const sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('idem_store', 'idem_record')"
	if err := t.QueryRowContext(background, sql).Scan(&tables); tables == 0 || err != nil {
		return 0, err
	}
	err = t.QueryRowContext(background, "SELECT coalesce(max(version), -1) FROM idem_store").Scan(&found)
	return found, err
}
