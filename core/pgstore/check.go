package pgstore

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-idem/idem/core/driver"
)

// Check looks for settings that can lose claims or outcomes, refuse requests, or make requests wait. It returns one finding for
// each, and none if all is well. Call it at start-up with the pool and the options of New. It writes nothing. An error means
// that Check could not read the settings. A finding is no error, because only the service knows which risks it accepts.
func Check(ctx context.Context, pool *pgxpool.Pool, opts ...Option) ([]driver.Finding, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	var found *serverSettings
	isDirect := false
	err = pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		about, err := inspect(ctx, conn.Conn())
		if err != nil {
			return err
		}
		isDirect = about.direct
		found, err = readSettings(ctx, conn.Conn())
		return err
	})
	if err != nil {
		return nil, err
	}
	listensDirectly := isDirect
	if o.listen != nil {
		if listensDirectly, err = poolIsDirect(ctx, o.listen); err != nil {
			return nil, err
		}
	}
	return append(found.check(), checkPooler(pool.Config(), isDirect, listensDirectly)...), nil
}

// poolIsDirect reports whether no pooler is between pool and its server.
func poolIsDirect(ctx context.Context, pool *pgxpool.Pool) (isDirect bool, err error) {
	err = pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		found, err := inspect(ctx, conn.Conn())
		isDirect = err == nil && found.direct
		return err
	})
	return isDirect, err
}

// checkPooler checks what a pooler between the pool and the server needs.
func checkPooler(pool *pgxpool.Config, isDirect, listensDirectly bool) (findings []driver.Finding) {
	if !listensDirectly {
		findings = append(findings, driver.Finding{
			Setting: "the connection of Watch", Found: "one through a pooler",
			Why: "a waiting request is not notified; it polls after 1, 2 and 4 seconds",
			Fix: "pass a pool of direct connections with pgstore.ListenOn",
		})
	}
	mode := pool.ConnConfig.DefaultQueryExecMode
	if !isDirect && (mode == pgx.QueryExecModeCacheStatement || mode == pgx.QueryExecModeDescribeExec) {
		findings = append(findings, driver.Finding{
			Setting: "DefaultQueryExecMode", Found: mode.String(),
			Why: "if the pooler shares connections between transactions, statements of handlers fail or meet those of other clients",
			Fix: "set pgx.QueryExecModeExec; the calls of the Store use it anyway",
		})
	}
	return findings
}

// serverSettings are the settings of a server that Check reads.
type serverSettings struct {
	fsync, fullPageWrites, commit, standbyNames, isolation, idleTimeout string
	keepalive                                                           int
	standbys                                                            int
	inRecovery                                                          bool
}

// readSettings reads the settings of the server that conn belongs to, as they are for the role of conn.
func readSettings(ctx context.Context, conn *pgx.Conn) (*serverSettings, error) {
	s := &serverSettings{}
	const sql = `SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
		current_setting('synchronous_standby_names'), current_setting('default_transaction_isolation'),
		current_setting('idle_in_transaction_session_timeout'),
		(SELECT setting::int FROM pg_settings WHERE name = 'tcp_keepalives_idle'),
		(SELECT count(*) FROM pg_stat_replication)::int, pg_is_in_recovery()`
	return s, conn.QueryRow(ctx, sql, pgx.QueryExecModeExec).Scan(&s.fsync, &s.fullPageWrites, &s.commit, &s.standbyNames,
		&s.isolation, &s.idleTimeout, &s.keepalive, &s.standbys, &s.inRecovery)
}

// maxKeepalive is the tcp_keepalives_idle, in seconds, that Check does not report.
const maxKeepalive = 60

// check returns the findings of one server.
func (s *serverSettings) check() (findings []driver.Finding) {
	require := func(ok bool, setting, found, why, fix string) {
		if !ok {
			findings = append(findings, driver.Finding{Setting: setting, Found: found, Why: why, Fix: fix})
		}
	}
	require(s.fsync == "on", "fsync", s.fsync, "a crash of the machine can lose or damage all records", "set on")
	require(s.fullPageWrites == "on", "full_page_writes", s.fullPageWrites,
		"a crash of the machine can damage records, unless the file system never writes half a page", "set on")
	require(s.commit != "off", "synchronous_commit", "off", "a crash forgets the last claims and outcomes", "set on")
	require(s.standbys == 0 || s.standbyNames != "", "synchronous_standby_names", "empty",
		"a failover can lose the last claims and outcomes", "name the standbys that must have them")
	require(s.standbyNames == "" || s.commit != "local", "synchronous_commit", "local",
		"the server does not wait for the standbys of synchronous_standby_names, so a failover can lose the last claims and outcomes", "set on")
	require(s.isolation == "read committed", "default_transaction_isolation", s.isolation,
		"each call takes three round trips instead of one, and InTx without a level can fail to commit", "set read committed for this role")
	require(s.idleTimeout != "0" || s.keepalive > 0 && s.keepalive <= maxKeepalive, "idle_in_transaction_session_timeout", "0",
		"the transaction of a host that has vanished holds its key until TCP notices, after "+strconv.Itoa(s.keepalive)+" seconds",
		"set some seconds more than a run with an InTx takes, or tcp_keepalives_idle to some seconds")
	require(!s.inRecovery, "pg_is_in_recovery", "true", "the server is a standby, so every call is refused",
		"connect to the primary, with target_session_attrs=read-write")
	return findings
}
