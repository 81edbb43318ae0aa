package sqlitestore

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
)

//go:embed schema.sql
var schemaSQL string

// version is the version of the schema that schema.sql makes.
const version = 1

// makeSchema makes the write-ahead log and the tables, unless they exist. It changes nothing in a file that has the tables of a
// later version. It takes the write lock only if it makes the tables. With mustExist it returns an error instead.
func (s *Store) makeSchema(ctx context.Context, mustExist bool) error {
	if !mustExist {
		if err := s.makeLog(ctx); err != nil {
			return err
		}
	}
	found, err := read(ctx, s, schemaVersion)
	if found == 0 && mustExist && err == nil {
		return fmt.Errorf("sqlitestore: Open: %s has no store in it: name the file of the service", s.path)
	}
	if found == 0 && err == nil {
		found, err = write(ctx, s, makeTables)
	}
	if err == nil && found != version {
		err = fmt.Errorf("sqlitestore: Open: %s has tables of version %d, and this package knows version %d: deploy the version of "+
			"the package that made them, or one after that", s.path, found, version)
	}
	return err
}

// makeTables makes the tables, unless another process has made them meanwhile. It returns their version.
func makeTables(t *transaction) (found int, err error) {
	if found, err = schemaVersion(t); found != 0 || err != nil {
		return found, err
	}
	return version, t.execute(schemaSQL)
}

// makeLog gives the file a write-ahead log, in which readers and a writer do not wait for each other.
func (s *Store) makeLog(ctx context.Context) error {
	conn, err := connect(ctx, s.writer)
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
	if err == nil {
		err = checkWritable(conn)
	}
	return s.explain(err)
}

// checkWritable returns an error if the file cannot be written. SQLite opens such a file all the same, and says so when a
// statement writes. If another connection writes at the moment, the file can be written.
func checkWritable(conn *sql.Conn) error {
	t := transaction{Conn: conn}
	err := t.execute("BEGIN IMMEDIATE")
	if err == nil {
		err = errors.Join(t.execute("CREATE TABLE idem_written (x)"), t.execute("ROLLBACK"))
	}
	if isBusy(err) {
		return nil
	}
	return err
}

// schemaVersion returns the version of the tables in the file, or 0 if there are none.
func schemaVersion(from querier) (found int, err error) {
	var tables int
	const sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('idem_store', 'idem_record')"
	if err := from.QueryRowContext(background, sql).Scan(&tables); tables == 0 || err != nil {
		return 0, err
	}
	err = from.QueryRowContext(background, "SELECT coalesce(max(version), -1) FROM idem_store").Scan(&found)
	return found, err
}
