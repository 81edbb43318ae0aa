package sqlitestore

import (
	"context"

	"github.com/go-idem/idem/core/driver"
)

// Check looks for settings that can lose claims or outcomes, or refuse requests. It returns one finding for each, and none if all
// is well. Call it at start-up. It writes nothing. An error means that Check could not read the settings. A finding is no error,
// because only the service knows which risks it accepts.
func (s *Store) Check(ctx context.Context) ([]driver.Finding, error) {
	findings, err := read(ctx, s, func(from querier) ([]driver.Finding, error) {
		var mode string
		if err := from.QueryRowContext(background, "PRAGMA journal_mode").Scan(&mode); err != nil || mode == "wal" {
			return nil, err
		}
		return []driver.Finding{{
			Setting: "journal_mode", Found: mode,
			Why: "readers and writers wait for each other, so calls take longer or end with an error",
			Fix: "open the file again; no other program may change its journal_mode",
		}}, nil
	})
	if err != nil {
		return nil, err
	}
	if s.synchronous != "FULL" {
		findings = append(findings, driver.Finding{
			Setting: "synchronous", Found: s.synchronous,
			Why: "a loss of power forgets the last claims and outcomes", Fix: "leave out NormalSync",
		})
	}
	return append(findings, checkDisk(s.path)...), nil
}
