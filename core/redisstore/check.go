package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core/driver"
)

// Finding is something about servers or client that weakens what the engine promises.
type Finding struct {
	Setting string // what to change, as the server or go-redis calls it
	Found   string // its value
	Why     string // what can happen
	Fix     string // what to set instead
}

// String is one line for a log.
func (f Finding) String() string {
	return fmt.Sprintf("%s is %s: %s; %s", f.Setting, f.Found, f.Why, f.Fix)
}

// Check looks for settings that could lose claims or outcomes, or make requests hang, and returns what it finds: nothing
// when all is well. It is for start-up, with the client and options that New is given. It writes one record and lets it
// expire. An error says that the servers could not be asked; a Finding is no error, because only the service knows what it
// can afford.
func Check(ctx context.Context, client redis.UniversalClient, opts ...Option) ([]Finding, error) {
	store := New(client, opts...)
	findings := checkClient(client)
	node := func(ctx context.Context, node *redis.Client) error {
		found, err := store.checkServer(ctx, node)
		findings = append(findings, found...)
		return err
	}
	var err error
	switch c := client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, serialized(node))
	case *redis.Client:
		err = node(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	return append(findings, store.checkScripts(ctx)...), nil
}

// serialized keeps calls of a cluster client, which come at once, apart.
func serialized(f func(context.Context, *redis.Client) error) func(context.Context, *redis.Client) error {
	turn := make(chan struct{}, 1)
	return func(ctx context.Context, node *redis.Client) error {
		turn <- struct{}{}
		defer func() { <-turn }()
		return f(ctx, node)
	}
}

// checkClient looks at what go-redis was told.
func checkClient(client redis.UniversalClient) (findings []Finding) {
	watchesDeadlines := true
	switch c := client.(type) {
	case *redis.Client:
		watchesDeadlines = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		watchesDeadlines = c.Options().ContextTimeoutEnabled
		if every := c.Options().ClusterStateReloadInterval; every > 5*time.Second {
			findings = append(findings, Finding{"ClusterOptions.ClusterStateReloadInterval", every.String(),
				"the slots of a master that died are out of reach for so long", "set 1 to 2 s"})
		}
	}
	if !watchesDeadlines {
		findings = append(findings, Finding{"Options.ContextTimeoutEnabled", "false",
			"a dead server holds requests for ReadTimeout times the retries, not for Limits.StoreTimeout", "set true"})
	}
	return findings
}

// checkServer looks at one server that takes writes, and at its replicas.
func (s *Store) checkServer(ctx context.Context, node *redis.Client) ([]Finding, error) {
	info, err := readInfo(ctx, node)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	check := func(ok bool, f Finding) {
		if !ok {
			f.Setting += " of " + node.Options().Addr
			findings = append(findings, f)
		}
	}
	check(atLeast(info["redis_version"], 5), Finding{"version", info["redis_version"], "a script can not ask for the time and write", "use 5.0 or later"})
	policy := info["maxmemory_policy"]
	check(policy == "noeviction" || policy == "" || info["maxmemory"] == "0", Finding{"maxmemory-policy", policy, "an evicted record is a key that runs again", "set noeviction"})
	check(info["aof_enabled"] == "1", Finding{"appendonly", "no", "a restart forgets every key since the last snapshot", "set yes"})
	replicas, _ := strconv.Atoi(info["connected_slaves"])
	check(replicas >= s.durability.replicas, Finding{"connected replicas", strconv.Itoa(replicas), fmt.Sprintf("%s wants %d, so every request is refused", s.durability.command, s.durability.replicas), "start more, or ask for less"})
	bounded := info["min_slaves_good_slaves"] != "" || replicas == 0
	check(bounded, Finding{"min-replicas-to-write", "0", "an old primary that was cut off goes on taking claims that a failover throws away", "set 1, and min-replicas-max-lag 10"})
	check(s.durability.command != "WAITAOF" || atLeast(info["redis_version"], 7, 2), Finding{"version", info["redis_version"], "there is no WAITAOF, so every request is refused", "use 7.2 or later, or WaitReplicas"})
	for i := range replicas {
		skew, err := s.clockSkew(ctx, node, info["slave"+strconv.Itoa(i)])
		check(err != nil || skew < maxClockSkew, Finding{"clock of a replica", skew.String() + " apart", "after a failover leases and retentions are so much shorter or longer", "run NTP on all servers"})
	}
	return findings, nil
}

// maxClockSkew is how far clocks may be apart.
const maxClockSkew = 100 * time.Millisecond

// clockSkew is how far the clocks of a server and its replica are apart, the way there left out.
func (s *Store) clockSkew(ctx context.Context, node *redis.Client, replica string) (time.Duration, error) {
	fields := map[string]string{}
	for field := range strings.SplitSeq(replica, ",") {
		name, value, _ := strings.Cut(field, "=")
		fields[name] = value
	}
	options := *node.Options()
	options.Addr, options.Dialer = fields["ip"]+":"+fields["port"], nil
	other := redis.NewClient(&options)
	defer other.Close()
	before := time.Now()
	here, err := node.Time(ctx).Result()
	if err != nil {
		return 0, err
	}
	there, err := other.Time(ctx).Result()
	return max(there.Sub(here).Abs()-time.Since(before), 0), err
}

// readInfo reads the fields of INFO.
func readInfo(ctx context.Context, node *redis.Client) (map[string]string, error) {
	text, err := node.Info(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("idem: INFO of %s: %w", node.Options().Addr, err)
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		info[name] = value
	}
	return info, nil
}

// atLeast compares versions by their first numbers.
func atLeast(version string, least ...int) bool {
	numbers := strings.Split(version, ".")
	for i, want := range least {
		if i >= len(numbers) {
			return false
		}
		if n, _ := strconv.Atoi(numbers[i]); n != want {
			return n > want
		}
	}
	return true
}

// checkScripts runs every verb on a record of its own, to see that the servers let this client.
func (s *Store) checkScripts(ctx context.Context) []Finding {
	c := driver.Claim{Lease: time.Second, Retention: 2 * time.Second}
	rand.Read(c.Key[:])
	rand.Read(c.Owner[:])
	c.Fingerprint[0] = 1
	entry, err := s.Begin(ctx, c)
	c.Fence = entry.Fence
	for _, verb := range []func() error{
		func() error { return s.Extend(ctx, c) },
		func() error { return s.Checkpoint(ctx, c, "check", nil) },
		func() error { return s.Fail(ctx, c, driver.Failure{Cause: "check"}) },
	} {
		if err == nil {
			err = verb()
		}
	}
	if err != nil {
		return []Finding{{"scripts", err.Error(), "no request can be protected", "allow EVALSHA, EVAL, GET, GETRANGE, SET, SETRANGE, PEXPIRE, PTTL, TIME, EXISTS, DEL, HSET, HGET, HGETALL, PUBLISH, SPUBLISH, SUBSCRIBE, UNSUBSCRIBE, SSUBSCRIBE and SUNSUBSCRIBE on " + s.prefix + "*"}}
	}
	return nil
}
