package plan

import (
	"math/rand/v2"
	"strconv"
	"time"
)

// Outage is what decides how long the clients of a Cluster notice that a master is lost.
type Outage struct {
	NodeTimeout time.Duration // cluster-node-timeout of the servers
	Reload      time.Duration // ClusterStateReloadInterval of the clients
	Read        time.Duration // ReadTimeout of the clients
	Partial     bool          // the servers have cluster-require-full-coverage no
	Away        time.Duration // how long it is, if that is known; 0 to reckon it
}

// election is how long the masters take to elect a replica, once they agree that its master is lost. The replica waits for half a second
// and up to another half before it asks for votes.
const election = time.Second

// gossip is how long it takes a majority of the masters to tell each other that a master does not answer, besides the pings that they
// send in half a node timeout.
const gossip = time.Second

// bounds returns how long requests of the keys of a lost master are refused. Its peers miss it after a node timeout. They agree on that
// by what their pings say, and each of them pings every other one in half a node timeout. Clients ask for the new master when their
// view of the Cluster is older than Reload. They ask any node, and wait for Read if that is the lost one and its host is silent.
func (o Outage) bounds() (shortest, longest time.Duration) {
	if o.Away > 0 {
		return o.Away, o.Away
	}
	return o.NodeTimeout + election/2, o.NodeTimeout + o.NodeTimeout/2 + gossip + election + o.Reload + o.Read
}

// elsewhere returns how long requests of other keys are refused. Unless cluster-require-full-coverage is no, every node refuses all
// requests from when the masters agree that one of them is lost until its replica is elected.
func (o Outage) elsewhere() time.Duration {
	if o.Partial {
		return 0
	}
	_, longest := o.bounds()
	return min(election, longest)
}

// afterElection returns for how long clients may ask the lost master although its replica is elected.
func (o Outage) afterElection() time.Duration {
	if o.Away > 0 {
		return 0
	}
	return o.Reload + o.Read
}

func (o Outage) validate(check func(ok bool, name string, value any, must string)) {
	check(o.NodeTimeout >= 100*time.Millisecond && o.NodeTimeout <= time.Hour, "node-timeout", o.NodeTimeout, "100ms to 1h")
	check(o.Reload >= 10*time.Millisecond && o.Reload <= time.Hour, "reload", o.Reload, "10ms to 1h")
	check(o.Read >= 10*time.Millisecond && o.Read <= time.Hour, "read-timeout", o.Read, "10ms to 1h")
	check(o.Away >= 0 && o.Away <= time.Hour, "away", o.Away, "0 to 1h")
}

// Retries is what clients see of an outage that send a refused request again, as adapters/client does by default.
type Retries struct {
	Attempts int     `json:"most_attempts"`           // of one request
	Longest  Seconds `json:"longest_request_seconds"` // from the first attempt to the response of the last one
	Mean     float64 `json:"mean_attempts"`           // of the requests whose first attempt is refused
	GivenUp  float64 `json:"part_given_up"`           // of these requests: the last attempt, within MaxElapsed, is refused, too
}

// Seconds is a duration whose JSON is a number of seconds.
type Seconds time.Duration

// MarshalJSON implements json.Marshaler.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Seconds(), 'f', 1, 64), nil
}

// String returns the duration, in tenths of a second.
func (s Seconds) String() string { return time.Duration(s).Round(100 * time.Millisecond).String() }

// The defaults of adapters/client, of Limits.StoreTimeout, and of the Retry-After of a 503. A test compares them with that client.
const (
	maxAttempts  = 20
	maxElapsed   = time.Minute
	maxPause     = 10 * time.Second
	firstPause   = 100 * time.Millisecond
	retryAfter   = time.Second
	storeTimeout = time.Second
)

// clients is how many clients retries draws.
const clients = 10_000

// retries draws clients whose first attempts are spread evenly over an outage. A refused attempt takes up to storeTimeout.
func retries(random *rand.Rand, outage time.Duration) (r Retries) {
	attempts := 0
	for range clients {
		first := time.Duration(random.Float64() * float64(outage))
		n, took, isAnswered := retry(random, outage-first)
		attempts += n
		r.Attempts, r.Longest = max(r.Attempts, n), max(r.Longest, Seconds(took))
		if !isAnswered {
			r.GivenUp += 1.0 / clients
		}
	}
	r.Mean = float64(attempts) / clients
	return r
}

// retry draws the attempts of one request while an outage lasts for so long. An attempt after the outage takes no time.
func retry(random *rand.Rand, outage time.Duration) (attempts int, took time.Duration, isAnswered bool) {
	for attempts = 1; took < outage; attempts++ {
		ended := took + time.Duration(random.Float64()*float64(storeTimeout))
		longest := min(firstPause<<min(attempts-1, 10), maxPause)
		next := ended + max(retryAfter, longest-time.Duration(random.Float64()*float64(longest/2)))
		if attempts == maxAttempts || next >= maxElapsed {
			return attempts, ended, false
		}
		took = next
	}
	return attempts, took, true
}
