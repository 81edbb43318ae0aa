package sqlitestore_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/sqlitestore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/hangtest"
	"github.com/go-idem/idem/internal/testclock"
)

func TestOpenSaysWhatIsWrongWithTheFile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		make func(path string) string // returns the path that is opened
		want []string                 // parts of the error
	}{
		"no path":      {func(string) string { return "" }, []string{`path ""`, "memstore"}},
		"memory":       {func(string) string { return ":memory:" }, []string{"memstore"}},
		"no directory": {func(path string) string { return path + "/records.db" }, []string{"payments.db does not exist: make it"}},
		"a directory":  {func(path string) string { return filepath.Dir(path) }, []string{"cannot be opened"}},
		"not a database": {func(path string) string {
			require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("text", 1000)), 0o600))
			return path
		}, []string{"no SQLite database"}},
		"a later version": {func(path string) string {
			_, err := open(t, path).DB().ExecContext(ctx, "UPDATE idem_store SET version = 7")
			require.NoError(t, err)
			return path
		}, []string{"version 7", "knows version 1", "deploy the version"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := test.make(newPath(t))
			store, err := sqlitestore.Open(ctx, path)
			require.Error(t, err)
			assert.Nil(t, store)
			for _, part := range append(test.want, "sqlitestore: ") {
				assert.ErrorContains(t, err, part)
			}
		})
	}
	for _, wrong := range []sqlitestore.Option{sqlitestore.MaxBytes(-1), sqlitestore.Timeout(-1)} {
		_, err := sqlitestore.Open(ctx, newPath(t), wrong)
		assert.ErrorContains(t, err, "must not be negative")
	}
}

func TestAStoreThatMustExistIsNotMade(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	_, err := sqlitestore.Open(ctx, path, sqlitestore.MustExist())
	assert.ErrorContains(t, err, "no such file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err = sqlitestore.Open(ctx, path, sqlitestore.MustExist())
	assert.ErrorContains(t, err, "has no store in it")
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Zero(t, info.Size(), "nothing was made")
	c := claimed(t, open(t, path))
	assert.Equal(t, driver.InProgress, begin(t, open(t, path, sqlitestore.MustExist()), rival(c)).State)
}

func TestATimeoutBoundsCallsWithoutADeadline(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	store := open(t, path, sqlitestore.Timeout(bound))
	other := open(t, path)
	err := other.InTx(ctx, func(sqlitestore.Tx) error {
		h, began := &hanging{store, storetest.NewClaim(time.Minute, time.Hour)}, time.Now()
		for _, name := range []string{"Store.Begin", "Store.Sweep", "Store.InTx"} {
			assert.ErrorIs(t, h.calls()[name](ctx), context.DeadlineExceeded, name)
		}
		assert.Less(t, time.Since(began), 3*bound+hangtest.Slack)
		return nil
	})
	require.NoError(t, err)
}

// A path may have any characters, and a new file can be read by its owner only.
func TestAFileMayHaveAnyName(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b?c=d&mode=ro%20#é.db")
	claimed(t, open(t, path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// The child is another user if this one may write everything.
func TestAFileThatCannotBeWrittenIsRefused(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	claimed(t, open(t, path))
	dir := filepath.Dir(path)
	require.NoError(t, os.Chmod(path, 0o444))
	require.NoError(t, os.Chmod(dir, 0o555))
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	cmd := exec.Command(os.Args[0])
	if os.Geteuid() == 0 {
		cmd = exec.Command(copyProgram(t))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	}
	line := startProgram(t, cmd, "open", path).line(t)
	assert.Contains(t, line, path)
	assert.Regexp(t, "cannot be (written|opened)", line)
}

// copyProgram returns a copy of the test binary that every user may execute.
func copyProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	from, err := os.Open(os.Args[0])
	require.NoError(t, err)
	defer func() { _ = from.Close() }()
	path := filepath.Join(dir, "test")
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	_, err = io.Copy(to, from)
	require.NoError(t, err)
	require.NoError(t, to.Close())
	return path
}

// A process that has the file open goes on when the file is gone, and no connection of it makes another one.
func TestAFileThatWasDeletedIsNotMadeAnew(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	store := open(t, path)
	require.NoError(t, os.Remove(path))
	_, err := store.DB().ExecContext(ctx, "CREATE TABLE t (x)") // the first statement of this pool
	assert.ErrorContains(t, err, "unable to open database file")
	assert.NoFileExists(t, path)
}

// A claim that finds no room runs nothing, and the outcome of a run that has begun is stored when there is room again.
func TestAFullDiskRunsNothingAndLosesNoOutcome(t *testing.T) {
	t.Parallel()
	s := newService(t, func(c *core.Config) { c.Lease.Duration, c.Limits.StoreTimeout = time.Minute, time.Second })
	running, long := claimed(t, s.store), strings.Repeat("long", 10_000)
	require.NoError(t, s.store.SetMaxPages(1)) // which stands for as many as there are
	for refused := 0; refused < 50; {          // a key that was refused may have needed a page of the index, and the next may not
		_, err := s.store.Begin(ctx, storetest.NewClaim(time.Minute, time.Hour))
		if err != nil {
			require.ErrorIs(t, err, sqlitestore.ErrFull)
			require.ErrorContains(t, err, "payments.db")
			require.ErrorContains(t, err, "free space")
			refused++
		}
	}
	require.NoError(t, s.store.Extend(ctx, running))
	require.ErrorIs(t, s.store.Complete(ctx, running, []byte(long)), sqlitestore.ErrFull)
	assert.Equal(t, driver.InProgress, begin(t, s.store, rival(running)).State)

	result := s.send(func(context.Context) (*core.Response, error) { t.Error("the handler ran"); return created() })
	assert.Equal(t, "store-unavailable", result.Problem)

	require.NoError(t, s.store.SetMaxPages(1<<30))
	require.NoError(t, s.store.Complete(ctx, running, []byte(long)))
	assert.Equal(t, long, string(begin(t, s.store, rival(running)).Outcome))
}

// Below MaxBytes there is room for the outcomes of the runs that have begun.
func TestMaxBytesRefusesNewKeysAndAcceptsOutcomes(t *testing.T) {
	t.Parallel()
	store := newStore(t, sqlitestore.MaxBytes(1<<18))
	var claims []driver.Claim
	for {
		c := storetest.NewClaim(time.Minute, time.Hour)
		entry, err := store.Begin(ctx, c)
		if err != nil {
			require.ErrorIs(t, err, sqlitestore.ErrFull)
			assert.ErrorContains(t, err, "MaxBytes is 262144")
			break
		}
		c.Fence = entry.Fence
		claims = append(claims, c)
	}
	require.Greater(t, len(claims), 100)
	assert.ErrorIs(t, store.Fail(ctx, storetest.NewClaim(time.Minute, time.Hour), driver.Failure{}), driver.ErrLost)
	require.NoError(t, store.Extend(ctx, claims[0]))
	require.NoError(t, store.Checkpoint(ctx, claims[0], "step", make([]byte, 1000)))
	require.NoError(t, store.Complete(ctx, claims[0], make([]byte, 10_000)))
	require.NoError(t, store.Fail(ctx, claims[1], driver.Failure{}))
	assert.Equal(t, 2, begin(t, store, rival(claims[1])).Attempt, "the key has its place")
}

func TestARowThatIsDamagedIsNeitherReplayedNorOverwritten(t *testing.T) {
	t.Parallel()
	for _, damage := range []string{
		"state = 'STARTFD'", "owner = x'00'", "fingerprint = x'00'", "fingerprint = NULL", "fence = 0", "noted = x'00'",
	} {
		t.Run(damage, func(t *testing.T) {
			store := newStore(t)
			c := claimed(t, store)
			_, err := store.DB().ExecContext(ctx, "PRAGMA ignore_check_constraints = 1; UPDATE idem_record SET "+damage)
			require.NoError(t, err)
			_, err = store.Begin(ctx, rival(c))
			assert.ErrorIs(t, err, driver.ErrUnreadable)
			assert.ErrorIs(t, store.Complete(ctx, c, nil), driver.ErrUnreadable)
			assert.ErrorIs(t, store.Fail(ctx, c, driver.Failure{}), driver.ErrUnreadable)
			seen, err := store.Look(ctx, c.Key)
			require.NoError(t, err)
			assert.Equal(t, driver.Unreadable, seen.State)
			assert.ErrorIs(t, store.Forget(ctx, seen), driver.ErrLost)
		})
	}
}

func TestARowIsNotSweptBeforeItsTimeAndByTheClaimsAfterIt(t *testing.T) {
	t.Parallel()
	store, now := newStore(t), testclock.New(time.Now())
	store.SetClock(now.Now)
	const records = 20
	for range records {
		c := claimed(t, store)
		c.LateRetry = time.Hour
		require.NoError(t, store.Checkpoint(ctx, c, "step", nil))
		require.NoError(t, store.Complete(ctx, c, nil))
	}
	count := func(table string) (n int) {
		require.NoError(t, store.DB().QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n))
		return n
	}
	n, err := store.Sweep(ctx, 1000)
	require.NoError(t, err)
	assert.Zero(t, n)
	assert.Equal(t, []int{records, records}, []int{count("idem_record"), count("idem_tombstone")})
	now.Advance(time.Hour)
	for range records {
		claimed(t, store)
	}
	assert.Equal(t, []int{records, records}, []int{count("idem_record"), count("idem_tombstone")}, "the old records are gone")
	now.Advance(time.Hour)
	n, err = store.Sweep(ctx, 1000)
	require.NoError(t, err)
	assert.Equal(t, 2*records, n)
	assert.Zero(t, count("idem_record")+count("idem_tombstone")+count("idem_checkpoint"))
	_, err = store.Sweep(ctx, 0)
	assert.ErrorContains(t, err, "limit")
}

// A record does not grow with the owners that withdraw while it is held.
func TestARecordNotesTheLastOwnersOnly(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	c := claimed(t, store)
	for range 40 {
		require.ErrorIs(t, store.Fail(ctx, rival(c), driver.Failure{}), driver.ErrLost)
	}
	var length int
	require.NoError(t, store.DB().QueryRowContext(ctx, "SELECT length(noted) FROM idem_record").Scan(&length))
	assert.Equal(t, 16*len(c.Owner), length)
}

func TestTheShortestDurationsAreRoundedUp(t *testing.T) {
	t.Parallel()
	h := withClock(t)
	c := storetest.NewClaim(time.Nanosecond, time.Nanosecond)
	begin(t, h.Store, c)
	assert.Equal(t, driver.InProgress, begin(t, h.Store, rival(c)).State)
	h.Advance(time.Microsecond)
	assert.Equal(t, 1, begin(t, h.Store, rival(c)).Attempt)
}

// Fences grow although the clock goes back and the record was deleted.
func TestAClockThatGoesBackLowersNoFence(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*sqlitestore.Store, driver.Claim){
		"swept": func(store *sqlitestore.Store, c driver.Claim) {
			n, err := store.Sweep(ctx, 10)
			require.NoError(t, err)
			require.Equal(t, 1, n)
		},
		"forgotten": func(store *sqlitestore.Store, c driver.Claim) {
			seen, err := store.Look(ctx, c.Key)
			require.NoError(t, err)
			require.NoError(t, store.Forget(ctx, seen))
		},
		"expired": func(*sqlitestore.Store, driver.Claim) {},
	} {
		t.Run(name, func(t *testing.T) {
			store, now := newStore(t), testclock.New(time.Now())
			store.SetClock(now.Now)
			c := claimed(t, store)
			c.Retention = time.Second
			require.NoError(t, store.Complete(ctx, c, nil))
			if name != "forgotten" {
				now.Advance(time.Second)
			}
			if remove(store, c); name != "expired" {
				now.Advance(-2 * time.Hour)
			}
			next := begin(t, store, rival(c))
			assert.Equal(t, 1, next.Attempt)
			assert.Greater(t, next.Fence, c.Fence)
		})
	}
}

// The owner extends its lease after a Begin has read the row, and before that Begin reads the clock.
func TestALeaseThatIsExtendedMeanwhileIsNotOver(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	here, there, now := open(t, path), open(t, path), testclock.New(time.Now())
	there.SetClock(now.Now)
	c := claimed(t, there)
	now.Advance(c.Lease + time.Second)
	var extend sync.Once
	here.SetClock(func() time.Time {
		extend.Do(func() { assert.NoError(t, there.Extend(ctx, c)) })
		return now.Now()
	})
	cautious := rival(c)
	cautious.NoTakeover = true
	assert.Equal(t, driver.InProgress, begin(t, here, cautious).State)
}

// A claim that ends in this process wakes without a look for commits.
func TestAWaitingRequestIsNotifiedInTheSameProcess(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.store.SetPollInterval(time.Hour)
	looked := make(chan struct{}, 100)
	stop, err := s.store.Watch(ctx, [32]byte{}, func() { looked <- struct{}{} })
	require.NoError(t, err)
	defer stop()
	<-looked // it looks for commits when it begins, and not again for an hour
	for name, end := range map[string]func(driver.Claim) error{
		"complete": func(c driver.Claim) error { return s.store.Complete(ctx, c, nil) },
		"fail":     func(c driver.Claim) error { return s.store.Fail(ctx, c, driver.Failure{}) },
		"forget": func(c driver.Claim) error {
			require.NoError(t, s.store.Complete(ctx, c, nil))
			seen, err := s.store.Look(ctx, c.Key)
			return errors.Join(err, s.store.Forget(ctx, seen))
		},
	} {
		s.wakes(name, claimed(t, s.store), end)
	}
	s.send(func(run context.Context) (*core.Response, error) {
		s.wakes("a commit of InTx", s.claim(run), func(c driver.Claim) error {
			return errors.Join(s.inTx(run), s.store.Complete(run, c, nil))
		})
		return created()
	})
}

// wakes checks that the end of a claim wakes a watch of its key.
func (s *service) wakes(name string, c driver.Claim, end func(driver.Claim) error) {
	s.tb.Helper()
	woken := make(chan struct{}, 100)
	stop, err := s.store.Watch(ctx, c.Key, func() { woken <- struct{}{} })
	require.NoError(s.tb, err)
	defer stop()
	require.NoError(s.tb, end(c))
	select {
	case <-woken:
	case <-time.After(10 * time.Second):
		s.tb.Errorf("no wake after %s", name)
	}
}

// A run that ends in another process wakes the requests that wait in this one.
func TestAWaitingRequestIsNotifiedByAnotherProcess(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	here, there := open(t, path), open(t, path)
	for name, end := range map[string]func(driver.Claim) error{
		"complete": func(c driver.Claim) error { return there.Complete(ctx, c, nil) },
		"fail":     func(c driver.Claim) error { return there.Fail(ctx, c, driver.Failure{}) },
	} {
		c, woken := claimed(t, there), make(chan struct{}, 100)
		stop, err := here.Watch(ctx, c.Key, func() { woken <- struct{}{} })
		require.NoError(t, err)
		require.Equal(t, driver.InProgress, begin(t, here, rival(c)).State)
		require.NoError(t, end(c))
		select {
		case <-woken:
		case <-time.After(10 * time.Second):
			t.Errorf("no wake after %s", name)
		}
		stop()
	}
}

// No test takes the power away, so this one looks at what SQLite is asked for: 2 is FULL, and 1 is NORMAL.
func TestCommitsAreOnTheDiskUnlessTheServiceSaysOtherwise(t *testing.T) {
	t.Parallel()
	for want, opts := range map[[2]int][]sqlitestore.Option{
		{2, 0}: nil,
		{1, 1}: {sqlitestore.NormalSync(), sqlitestore.ForeignKeys()},
	} {
		found, err := open(t, newPath(t), opts...).Settings()
		require.NoError(t, err)
		assert.Equal(t, [][2]int{want, want}, found)
	}
}

func TestCheckFindsWhatCanLoseRecords(t *testing.T) {
	t.Parallel()
	findings, err := open(t, newPath(t)).Check(ctx)
	require.NoError(t, err)
	for _, finding := range findings {
		assert.Contains(t, finding.Setting, "the disk of", "a machine whose disk is full")
	}
	findings, err = open(t, newPath(t), sqlitestore.NormalSync()).Check(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, findings)
	assert.Equal(t, "synchronous", findings[0].Setting)
}
