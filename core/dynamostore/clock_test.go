package dynamostore_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/dynamostore"
	"github.com/go-idem/idem/internal/testclock"
)

// process is a store in a process whose clocks are wrong by hours, and stand still until the test moves them.
type process struct {
	*dynamostore.Store
	clock, wall *testclock.Clock
	requests    counter
}

// newProcess starts a process whose clocks are off by this duration.
func newProcess(t *testing.T, off time.Duration, changes ...func(*dynamodb.Options)) *process {
	p := &process{clock: testclock.New(time.Now().Add(off)), wall: testclock.New(time.Now().Add(off))}
	p.Store = sharedTable(t).store(append(changes, p.requests.counted())...)
	p.SetLocalClocks(p.clock.Now, p.wall.Now)
	return p
}

// pass lets time pass in these processes.
func pass(d time.Duration, processes ...*process) {
	for _, p := range processes {
		p.clock.Advance(d)
		p.wall.Advance(d)
	}
}

// offsets are those of the owner and of its rival.
var offsets = map[string][2]time.Duration{
	"the owner is ahead":  {7 * time.Hour, -5 * time.Hour},
	"the owner is behind": {-5 * time.Hour, 7 * time.Hour},
	"both are far behind": {-30 * 365 * 24 * time.Hour, -30 * 365 * 24 * time.Hour},
}

func TestClocksThatAreHoursOffNeitherEndNorProlongALease(t *testing.T) {
	t.Parallel()
	for name, off := range offsets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner, other := newProcess(t, off[0]), newProcess(t, off[1])
			c := claimed(t, owner, time.Minute)
			state := func() driver.State { return begin(t, other, rival(c)).State }
			pass(50*time.Second, owner, other)
			assert.Equal(t, driver.InProgress, state(), "at first sight")
			pass(59*time.Second, owner, other)
			assert.Equal(t, driver.InProgress, state(), "before a lease has passed since then")
			require.NoError(t, owner.Extend(ctx, c))
			pass(2*time.Second, owner, other)
			assert.Equal(t, driver.InProgress, state(), "the lease was extended")
			pass(59*time.Second, owner, other)
			assert.Equal(t, driver.InProgress, state(), "before a lease has passed since the extension was seen")
			require.NoError(t, owner.Extend(ctx, c), "the owner lives")
			assert.Equal(t, driver.InProgress, state())
			pass(61*time.Second, other)
			entry := begin(t, other, rival(c))
			assert.Equal(t, driver.Claimed, entry.State)
			assert.True(t, entry.Takeover)
			assert.Greater(t, entry.Fence, c.Fence)
			assert.ErrorIs(t, owner.Extend(ctx, c), driver.ErrLost)
		})
	}
}

func TestTheProcessThatGrantedALeaseCountsFromItsReply(t *testing.T) {
	t.Parallel()
	p := newProcess(t, 7*time.Hour)
	c := claimed(t, p, time.Minute)
	pass(59*time.Second, p)
	assert.Equal(t, driver.InProgress, begin(t, p, rival(c)).State)
	pass(time.Second, p)
	assert.Equal(t, driver.Claimed, begin(t, p, rival(c)).State)
}

// A process sends a Begin again whose reply was lost. What it gets is the rest of the lease that it was granted.
func TestARepeatedBeginGetsTheRestOfItsLease(t *testing.T) {
	t.Parallel()
	c := claimed(t, newProcess(t, 0), time.Minute)
	var by atomic.Int64
	by.Store(int64(30 * time.Second))
	entry := begin(t, newProcess(t, 0, shifted(&by)), c)
	assert.Equal(t, driver.Claimed, entry.State)
	assert.InDelta(t, 30*time.Second, entry.Remaining, float64(5*time.Second))
}

func TestClocksThatAreHoursOffDoNotEndARetention(t *testing.T) {
	t.Parallel()
	for name, off := range offsets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner, other := newProcess(t, off[0]), newProcess(t, off[1])
			c := claimed(t, owner, time.Minute)
			require.NoError(t, owner.Complete(ctx, c, []byte("kept")))
			retry := rival(c)
			retry.WantRemaining = true
			entry := begin(t, other, retry)
			assert.Equal(t, "kept", string(entry.Outcome))
			assert.InDelta(t, time.Hour, entry.Remaining, float64(5*time.Second))
		})
	}
}

// No process lives for a lease, so nobody has watched it.
func TestALeaseIsOverByTheClockOfDynamoDBAloneAfterAMinute(t *testing.T) {
	t.Parallel()
	for later, want := range map[time.Duration]driver.State{
		100 * time.Second: driver.InProgress,
		130 * time.Second: driver.Claimed,
	} {
		c := claimed(t, newProcess(t, 7*time.Hour), time.Minute)
		var by atomic.Int64
		by.Store(int64(later))
		young := newProcess(t, -5*time.Hour, shifted(&by))
		assert.Equal(t, want, begin(t, young, rival(c)).State, "after %v", later)
	}
}

func TestARetentionEndsByTheClockOfDynamoDB(t *testing.T) {
	t.Parallel()
	owner := newProcess(t, 0)
	c := claimed(t, owner, time.Minute)
	require.NoError(t, owner.Complete(ctx, c, []byte("kept")))
	for later, want := range map[time.Duration]driver.State{
		time.Hour + 30*time.Second: driver.Completed, // stored for a minute more than requested
		time.Hour + 70*time.Second: driver.Claimed,
	} {
		var by atomic.Int64
		by.Store(int64(later))
		retry := rival(c)
		retry.NoTakeover = true
		entry := begin(t, newProcess(t, 0, shifted(&by)), retry)
		assert.Equal(t, want, entry.State, "after %v", later)
		if want == driver.Claimed {
			assert.Equal(t, 1, entry.Attempt)
			return
		}
	}
}

// The monotonic clock of a machine may stand still while the machine is suspended.
func TestTheClockOfDynamoDBIsReadAgainAfterASuspension(t *testing.T) {
	t.Parallel()
	var by atomic.Int64
	p := newProcess(t, 0, shifted(&by))
	c := claimed(t, p, time.Minute)
	requests := func(call func()) int64 {
		before := p.requests.n.Load()
		call()
		return p.requests.n.Load() - before
	}
	extend := func() { require.NoError(t, p.Extend(ctx, c)) }
	assert.EqualValues(t, 1, requests(extend))
	by.Store(int64(30 * time.Minute))
	p.wall.Advance(30 * time.Minute) // and the monotonic clock has not moved
	assert.EqualValues(t, 2, requests(extend), "the clock is read before the lease is extended")
	assert.EqualValues(t, 1, requests(extend))
	young := newProcess(t, 0, shifted(&by))
	assert.Equal(t, driver.InProgress, begin(t, young, rival(c)).State, "the lease was counted from before the suspension")
	pass(11*time.Minute, p)
	assert.EqualValues(t, 2, requests(func() { _ = p.Extend(ctx, c) }), "the last response is too old")
}

// The Date header field has whole seconds, so the time since a response counts as well.
func TestTheClockOfDynamoDBGoesOnWithinASecond(t *testing.T) {
	t.Parallel()
	date := time.Now().UTC().Format(http.TimeFormat)
	p := newProcess(t, 0, through(func(send transport) transport {
		return func(r *http.Request) (*http.Response, error) {
			response, err := send(r)
			if err == nil {
				response.Header.Set("Date", date)
			}
			return response, err
		}
	}))
	first := claimed(t, p, time.Minute)
	for range 3 {
		pass(300*time.Millisecond, p)
		next := claimed(t, p, time.Minute)
		assert.Equal(t, int64(300_000), next.Fence-first.Fence, "a fence is a time in µs")
		first = next
	}
}

func TestALocalClockThatIsTooFastIsSetRightByTheNextResponse(t *testing.T) {
	t.Parallel()
	p := newProcess(t, 0)
	claimed(t, p, time.Minute)
	pass(5*time.Minute, p) // and a moment passes for DynamoDB
	tooLate := claimed(t, p, time.Minute)
	assert.InDelta(t, time.Now().Add(5*time.Minute).UnixMicro(), tooLate.Fence, 5e6)
	assert.InDelta(t, time.Now().UnixMicro(), claimed(t, p, time.Minute).Fence, 5e6)
}

// withoutDate takes the clock of DynamoDB out of all responses.
var withoutDate = through(func(send transport) transport {
	return func(r *http.Request) (*http.Response, error) {
		response, err := send(r)
		if err == nil {
			response.Header.Del("Date")
		}
		return response, err
	}
})

func TestWithoutADateNothingIsClaimed(t *testing.T) {
	t.Parallel()
	store := sharedTable(t).store(withoutDate)
	c := claimed(t, sharedTable(t).store(), time.Minute)
	_, err := store.Begin(ctx, rival(c))
	assert.ErrorContains(t, err, "no Date header field")
}
