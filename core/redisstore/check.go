package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core/driver"
)

// Check looks for settings that can lose claims or outcomes, or make requests hang. It returns one finding for each, and none
// if all is well. Call it at start-up with the client and options of New. It writes one record, which expires after 2
// seconds. An error means that Check could not read the settings. A finding is no error, because only the service knows which
// risks it accepts. On a Cluster it looks at every master, and its client must reach each of them; an error of one is an
// error of Check. The settings are those of this moment: a failover may bring a server with others into use.
func Check(ctx context.Context, client redis.UniversalClient, opts ...Option) ([]driver.Finding, error) {
	store := New(client, opts...)
	findings, allowed := checkClient(client), commands+commandsSince7
	node := func(ctx context.Context, node *redis.Client) error {
		info, err := readInfo(ctx, node)
		if err != nil {
			return err
		}
		if !atLeast(info["redis_version"], 7) {
			allowed = commands
		}
		findings = append(findings, store.checkServer(ctx, node, info)...)
		return nil
	}
	var err error
	switch c := client.(type) {
	case *redis.ClusterClient:
		var clocks clocks
		err = c.ForEachMaster(ctx, serialized(func(ctx context.Context, master *redis.Client) error {
			if err := clocks.read(ctx, master); err != nil {
				return err
			}
			return node(ctx, master)
		}))
		findings = append(findings, clocks.check()...)
	case *redis.Client:
		err = node(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	return append(findings, store.checkScripts(ctx, allowed)...), nil
}

// serialized returns a function that runs one call of f at a time. A cluster client calls it for all masters at once.
func serialized(f func(context.Context, *redis.Client) error) func(context.Context, *redis.Client) error {
	var mu sync.Mutex
	return func(ctx context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return f(ctx, node)
	}
}

// checkClient checks the options of the client.
func checkClient(client redis.UniversalClient) (findings []driver.Finding) {
	watchesDeadlines, readsReplicas := true, false
	switch c := client.(type) {
	case *redis.Client:
		watchesDeadlines = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		watchesDeadlines, readsReplicas = c.Options().ContextTimeoutEnabled, c.Options().ReadOnly
		if every := c.Options().ClusterStateReloadInterval; every > 5*time.Second {
			findings = append(findings, driver.Finding{
				Setting: "ClusterOptions.ClusterStateReloadInterval", Found: every.String(),
				Why: "the slots of a master that died are out of reach for so long", Fix: "set 1 to 2 s",
			})
		}
	}
	if readsReplicas {
		findings = append(findings, driver.Finding{
			Setting: "ClusterOptions.ReadOnly", Found: "true",
			Why: "commands that only read go to replicas, which lag behind: a handler that looks with this client whether an effect has " +
				"happened may not see it",
			Fix: "give the store a client without ReadOnly, RouteByLatency and RouteRandomly",
		})
	}
	if !watchesDeadlines {
		findings = append(findings, driver.Finding{
			Setting: "Options.ContextTimeoutEnabled", Found: "false",
			Why: "a dead server holds requests for ReadTimeout times the retries, not for Limits.StoreTimeout", Fix: "set true",
		})
	}
	return findings
}

// checkServer checks one server that accepts writes, by the fields of its INFO, and the clocks of its replicas.
func (s *Store) checkServer(ctx context.Context, node *redis.Client, info map[string]string) (findings []driver.Finding) {
	check := func(ok bool, setting, found, why, fix string) {
		if !ok {
			findings = append(findings, driver.Finding{Setting: setting + " of " + node.Options().Addr, Found: found, Why: why, Fix: fix})
		}
	}
	version, policy, role := info["redis_version"], info["maxmemory_policy"], info["role"]
	check(role != "slave", "role", "slave", "a replica refuses every claim",
		"connect to the primary; with Sentinels use redis.NewFailoverClient without ReplicaOnly")
	check(!isActiveActive(info), "replication", "active-active",
		"two servers accept the same claim at the same time, and both requests run", "use one primary for all keys of the store")
	check(atLeast(version, 5), "version", version, "a script cannot ask for the time and write", "use 5.0 or later")
	check(policy == "noeviction" || policy == "" || info["maxmemory"] == "0", "maxmemory-policy", policy,
		"an evicted record is a key that runs again", "set noeviction")
	check(info["aof_enabled"] == "1", "appendonly", "no", "a restart forgets every key since the last snapshot", "set yes")
	replicas, _ := strconv.Atoi(info["connected_slaves"])
	check(replicas >= s.durability.replicas, "connected replicas", strconv.Itoa(replicas),
		fmt.Sprintf("%s wants %d, so every request is refused", s.durability.command, s.durability.replicas), "start more, or ask for less")
	const isolated = "an old primary that was cut off goes on taking claims that a failover throws away"
	// INFO has this field only if min-replicas-to-write and min-replicas-max-lag are set.
	bounded := info["min_slaves_good_slaves"] != ""
	check(bounded || replicas == 0, "min-replicas-to-write", "0", isolated, "set 1, and min-replicas-max-lag 10")
	check(!bounded || atLeast(version, 7) || s.durability.replicas > 0, "min-replicas-to-write", "without effect on scripts",
		isolated, "use Redis 7.0 or later, or WaitReplicas")
	check(s.durability.command != "WAITAOF" || atLeast(version, 7, 2), "version", version,
		"there is no WAITAOF, so every request is refused", "use 7.2 or later, or WaitReplicas")
	for i := range replicas {
		skew := clockSkew(ctx, node, info["slave"+strconv.Itoa(i)])
		check(skew < maxClockSkew, "clock of a replica", skew.String()+" apart",
			"after a failover leases and retentions are so much shorter or longer", "run NTP on all servers")
	}
	return findings
}

// isActiveActive reports whether INFO says that other servers accept writes to the same keys: active replicas of KeyDB, and the
// module of conflict-free databases of Redis Enterprise.
func isActiveActive(info map[string]string) bool {
	return info["role"] == "active-replica" || strings.Contains(info["module"], "name=crdt,") || info["crdt_enabled"] == "1"
}

// maxClockSkew is the difference of clocks that Check does not report.
const maxClockSkew = 100 * time.Millisecond

// clockSkew returns the difference between the clocks of a server and its replica, less the time that the two calls took.
// replica is a "slave0" field of INFO. The replica is reached at the address that the server knows it by, which may be out of
// reach from here; then the difference is 0, as if both clocks were right.
func clockSkew(ctx context.Context, node *redis.Client, replica string) time.Duration {
	fields := map[string]string{}
	for field := range strings.SplitSeq(replica, ",") {
		name, value, _ := strings.Cut(field, "=")
		fields[name] = value
	}
	other := newClientLike(node, net.JoinHostPort(fields["ip"], fields["port"]), nil)
	defer other.Close()
	before := time.Now()
	here, errHere := node.Time(ctx).Result()
	there, errThere := other.Time(ctx).Result()
	if errHere != nil || errThere != nil {
		return 0
	}
	return max(there.Sub(here).Abs()-time.Since(before), 0)
}

// readInfo returns the fields of INFO by name. The field module stands for all modules, since each has one.
func readInfo(ctx context.Context, node *redis.Client) (map[string]string, error) {
	text, err := node.Info(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("idem: INFO of %s: %w", node.Options().Addr, err)
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "module" {
			value = info[name] + value + "; "
		}
		info[name] = value
	}
	return info, nil
}

// atLeast reports whether a version, such as "7.0.15", is at least these first numbers of one. A part that is no number
// counts as 0.
func atLeast(version string, least ...int) bool {
	var numbers []int
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part)
		numbers = append(numbers, n)
	}
	return slices.Compare(numbers, least) >= 0
}

// checkScripts sends calls of the store for a record of its own, to see whether the servers let this client run them. allowed
// are the commands that the client needs. What none of these calls needs, such as SUBSCRIBE, is not checked.
func (s *Store) checkScripts(ctx context.Context, allowed string) []driver.Finding {
	c := driver.Claim{Lease: time.Second, Retention: 2 * time.Second}
	rand.Read(c.Key[:]) // another process may check at the same time
	entry, err := s.Begin(ctx, c)
	c.Fence = entry.Fence
	for _, call := range []func() error{
		func() error { return s.Extend(ctx, c) },
		func() error { return s.Checkpoint(ctx, c, "check", nil) },
		func() error { return s.Fail(ctx, c, driver.Failure{Cause: "check"}) },
	} {
		if err == nil {
			err = call()
		}
	}
	if err != nil {
		return []driver.Finding{{
			Setting: "scripts", Found: err.Error(), Why: "no request can be protected", Fix: "allow " + allowed + " on " + s.prefix + "*",
		}}
	}
	return nil
}

// commands are those that the store and its scripts send.
const commands = "EVALSHA, EVAL, GET, GETRANGE, SET, SETRANGE, PEXPIRE, PTTL, TIME, EXISTS, DEL, HSET, HGET, HGETALL, " +
	"PUBLISH, SUBSCRIBE, UNSUBSCRIBE"

// commandsSince7 are those that the store also sends to Redis 7.0 or later: to find out when a record was made, and to notify
// in a Cluster. The ACL of an earlier Redis refuses a rule that names one.
const commandsSince7 = ", PEXPIRETIME, SPUBLISH, SSUBSCRIBE, SUNSUBSCRIBE"
