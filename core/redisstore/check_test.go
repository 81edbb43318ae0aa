package redisstore_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/lua"
)

var ofServer = regexp.MustCompile(` of [\d.]+:\d+$`)

// settings are what findings name, without the server they are of.
func settings(t *testing.T, client redis.UniversalClient, opts ...redisstore.Option) (names []string) {
	t.Helper()
	findings, err := redisstore.Check(ctx, client, opts...)
	require.NoError(t, err)
	for _, f := range findings {
		assert.NotEmpty(t, f.Found)
		assert.NotEmpty(t, f.Why)
		assert.NotEmpty(t, f.Fix)
		assert.Contains(t, f.String(), f.Fix)
		names = append(names, ofServer.ReplaceAllString(f.Setting, ""))
	}
	return names
}

func TestCheckHasNothingToSayOfAServerThatIsSetUpWell(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, "--appendonly", "yes", "--maxmemory", "100mb", "--maxmemory-policy", "noeviction").Client(t)
	assert.Empty(t, settings(t, client))
	assert.Eventually(t, func() bool { return len(client.Keys(ctx, "*").Val()) == 0 }, 20*time.Second, 50*time.Millisecond,
		"what it wrote expires")
}

func TestCheckNamesEachSettingThatCouldLoseRecords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		opts []redisstore.Option
		want string
	}{
		"eviction":           {[]string{"--appendonly", "yes", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, nil, "maxmemory-policy"},
		"no persistence":     {nil, nil, "appendonly"},
		"too few replicas":   {[]string{"--appendonly", "yes"}, []redisstore.Option{redisstore.WaitReplicas(1, time.Millisecond)}, "connected replicas"},
		"a command it lacks": {[]string{"--appendonly", "yes", "--rename-command", "EVALSHA", "FORBIDDEN"}, nil, "scripts"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Contains(t, settings(t, redistest.Start(t, c.args...).Client(t), c.opts...), c.want)
		})
	}
}

// A policy does not matter where there is no limit, and some servers do not name theirs.
func TestCheckFindsNoEvictionWhereThereIsNone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--maxmemory-policy", "allkeys-lru")
	assert.Empty(t, settings(t, server.Client(t)), "no limit")
	server.Config(t, "maxmemory", "100mb")
	client := server.Client(t)
	assert.Equal(t, []string{"maxmemory-policy"}, settings(t, client))
	client.AddHook(saying("maxmemory_policy:allkeys-lru\r\n", ""))
	assert.Empty(t, settings(t, client), "no policy")
}

func TestCheckSeesThatAServerIsTooOld(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	const tooOld, hasNoWAITAOF, hasAll = 2, 1, 0
	for version, lacks := range map[string]int{
		"4.0.14": tooOld, "5.0.0": hasNoWAITAOF, "6.2.14": hasNoWAITAOF, "7": hasNoWAITAOF, "7.0.15": hasNoWAITAOF,
		"7.2": hasAll, "7.4.1": hasAll, "8.0.0": hasAll,
	} {
		client := server.Client(t)
		client.AddHook(reports(version))
		found := settings(t, client)
		assert.Equal(t, lacks == tooOld, slices.Contains(found, "version"), version)
		assert.NotContains(t, found, "min-replicas-to-write", version)
		assert.Equal(t, lacks != hasAll, slices.Contains(settings(t, client, redisstore.WaitAOF(0, time.Second)), "version"), version)
	}
}

// changedReply is a hook that changes the text of a reply to INFO or TIME of a real server.
type changedReply struct {
	redis.Hook
	command string
	change  func(redis.Cmder)
}

func (*changedReply) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *changedReply) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == r.command {
			r.change(cmd)
		}
		return err
	}
}

func (*changedReply) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// saying is a hook that makes a server say other things of itself: in its INFO each old text is replaced by the one after it.
func saying(oldNew ...string) redis.Hook {
	return &changedReply{command: "info", change: func(cmd redis.Cmder) {
		info := cmd.(*redis.StringCmd)
		info.SetVal(strings.NewReplacer(oldNew...).Replace(info.Val()))
	}}
}

// clockAhead is a hook that makes the clock of a server so far ahead.
func clockAhead(ahead time.Duration) redis.Hook {
	return &changedReply{command: "time", change: func(cmd redis.Cmder) {
		at := cmd.(*redis.TimeCmd)
		at.SetVal(at.Val().Add(ahead))
	}}
}

// refusing is a hook with which a server refuses a command.
func refusing(command string) redis.Hook {
	return givenReplies(func(cmd redis.Cmder) any {
		if cmd.Name() == command {
			return refusal("NOPERM no right")
		}
		return nil
	})
}

func TestCheckSeesThatOtherServersAcceptWritesToTheSameKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	for name, change := range map[string][]string{
		"KeyDB":                           {"role:master", "role:active-replica"},
		"Redis Enterprise, by its module": {"# Cluster\r\n", "module:name=crdt,ver=1\r\nmodule:name=search,ver=1\r\n# Cluster\r\n"},
		"Redis Enterprise, by a field":    {"# Cluster\r\n", "crdt_enabled:1\r\n# Cluster\r\n"},
	} {
		client := server.Client(t)
		client.AddHook(saying(change...))
		assert.Equal(t, []string{"replication"}, settings(t, client), name)
	}
}

func TestCheckSeesThatAServerIsAReplica(t *testing.T) {
	t.Parallel()
	_, replica := replicated(t)
	assert.Contains(t, settings(t, replica.Client(t)), "role")
}

func TestCheckComparesTheClocksOfMasters(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartMasters(t, 3)
	client := cluster.Client(t)
	assert.NotContains(t, strings.Join(settings(t, client), " "), "clock")
	for i := range 6 { // each of the masters, in any order
		ahead, behind := cluster.Nodes[i%3].Addr, cluster.Nodes[(i%3+i/3+1)%3].Addr
		shifted := cluster.Client(t)
		shifted.OnNewNode(func(node *redis.Client) {
			node.AddHook(clockAhead(map[string]time.Duration{ahead: time.Hour, behind: -time.Hour}[node.Options().Addr]))
		})
		findings, err := redisstore.Check(ctx, shifted)
		require.NoError(t, err)
		i := slices.IndexFunc(findings, func(f driver.Finding) bool { return f.Setting == "clock of "+ahead })
		require.GreaterOrEqual(t, i, 0, findings)
		assert.Contains(t, findings[i].Found, " ahead of "+behind)
	}

	silent, addr := cluster.Client(t), cluster.Nodes[1].Addr
	silent.OnNewNode(func(node *redis.Client) {
		if node.Options().Addr == addr {
			node.AddHook(refusing("time"))
		}
	})
	_, err := redisstore.Check(ctx, silent)
	assert.ErrorContains(t, err, "TIME of "+addr+": NOPERM no right")
}

// The replica is asked at the address that its primary knows, by a connection that is closed.
func TestCheckComparesTheClockOfAReplica(t *testing.T) {
	t.Parallel()
	primary, replica := replicated(t)
	var mu sync.Mutex
	var connections []*redis.Conn // what is referred to is closed by nobody else
	options := *primary.Options()
	options.ClientName = "check"
	options.OnConnect = func(_ context.Context, c *redis.Conn) error {
		mu.Lock()
		defer mu.Unlock()
		connections = append(connections, c)
		return nil
	}
	_, port, _ := strings.Cut(replica.Addr, ":")
	_, unused, _ := strings.Cut(redistest.FreeAddr(), ":")
	for name, test := range map[string]struct {
		replyToTIME redis.Hook
		ip, port    string // of the replica, as the primary knows it
		finds       bool
	}{
		"it is an hour behind":              {clockAhead(time.Hour), "127.0.0.1", port, true},
		"it has an address of IPv6":         {clockAhead(time.Hour), "::ffff:127.0.0.1", port, true},
		"it is out of reach":                {clockAhead(time.Hour), "127.0.0.1", unused, false},
		"the primary does not say its time": {refusing("time"), "127.0.0.1", port, false},
	} {
		client := redis.NewClient(&options)
		defer client.Close()
		client.AddHook(test.replyToTIME)
		client.AddHook(saying("slave0:ip=127.0.0.1,port="+port, "slave0:ip="+test.ip+",port="+test.port))
		assert.Equal(t, test.finds, slices.Contains(settings(t, client), "clock of a replica"), name)
	}
	assert.NotEmpty(t, connections)
	observer := replica.Client(t)
	assert.Eventually(t, func() bool {
		clients, err := observer.ClientList(ctx).Result()
		return err == nil && !strings.Contains(clients, "name=check")
	}, 20*time.Second, 10*time.Millisecond)
}

// inMaintenance is a hook of a server with a replica that announces its maintenance, which no server here does.
type inMaintenance struct{}

func (inMaintenance) DialHook(next redis.DialHook) redis.DialHook { return next }

func (inMaintenance) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if info, isInfo := cmd.(*redis.StringCmd); isInfo {
			info.SetVal("redis_version:7.4.0\r\nconnected_slaves:1\r\nslave0:ip=127.0.0.1,port=1\r\n")
			return nil
		}
		return refusal("NOPERM no right")
	}
}

func (inMaintenance) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// The client of a replica has its own processor of what servers announce: go-redis panics if two clients share one.
func TestCheckAsksAReplicaOfAClientThatWantsAnnouncements(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{
		Protocol: 3, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeEnabled},
	})
	defer client.Close()
	client.AddHook(inMaintenance{})
	assert.Contains(t, settings(t, client), "scripts")
}

func TestCheckLooksForReadsFromReplicas(t *testing.T) {
	t.Parallel()
	options := *redistest.Cluster(t).Options()
	for name, set := range map[string]func(*redis.ClusterOptions){
		"ReadOnly":       func(o *redis.ClusterOptions) { o.ReadOnly = true },
		"RouteByLatency": func(o *redis.ClusterOptions) { o.RouteByLatency = true },
		"RouteRandomly":  func(o *redis.ClusterOptions) { o.RouteRandomly = true },
	} {
		changed := options
		set(&changed)
		client := redis.NewClusterClient(&changed)
		assert.Contains(t, settings(t, client), "ClusterOptions.ReadOnly", name)
		require.NoError(t, client.Close())
	}
}

func TestCheckGrowthSeesThatMemoryEndsWithinADay(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "100mb")
	growing := server.Client(t)
	none, err := redisstore.CheckGrowth(ctx, growing, 0)
	require.NoError(t, err)
	assert.Empty(t, none, "it does not grow")
	infos := 0
	growing.AddHook(&changedReply{command: "info", change: func(redis.Cmder) {
		infos++
		assert.NoError(t, server.Client(t).Set(ctx, "data", strings.Repeat("x", 1<<20), 0).Err())
	}})
	found, err := redisstore.CheckGrowth(ctx, growing, time.Millisecond)
	require.NoError(t, err)
	assert.Equal(t, 2, infos)
	require.Len(t, found, 1)
	assert.Equal(t, "maxmemory of "+server.Addr, found[0].Setting)
	assert.Contains(t, found[0].Found, "104857600 bytes")
	assert.Contains(t, found[0].Why, "it ends in ")
	server.Config(t, "maxmemory", "0")
	unlimited, err := redisstore.CheckGrowth(ctx, growing, time.Hour)
	require.NoError(t, err)
	assert.Empty(t, unlimited, "a server without a limit is not waited for")
}

func TestCheckGrowthSeesThatMemoryHasEnded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "100mb")
	client := server.Client(t)
	require.NoError(t, client.Set(ctx, "data", strings.Repeat("x", 2<<20), 0).Err())
	server.Config(t, "maxmemory", "2mb")
	found, err := redisstore.CheckGrowth(ctx, client, 0)
	require.NoError(t, err)
	require.Len(t, found, 1, "data that cannot grow is no store that is well")
	assert.Equal(t, "it has ended, and every claim is refused", found[0].Why)
}

// memoryOf is a hook that makes a server say how much memory it uses, each time it is asked.
func memoryOf(says ...memory) redis.Hook {
	return &changedReply{command: "info", change: func(cmd redis.Cmder) {
		info := cmd.(*redis.StringCmd)
		text := info.Val()
		for name, value := range map[string]int{"maxmemory": says[0].max, "used_memory": says[0].used, "used_memory_dataset": says[0].data} {
			text = regexp.MustCompile(`(?m)^`+name+`:\d+`).ReplaceAllString(text, name+":"+strconv.Itoa(value))
		}
		info.SetVal(text)
		says = says[1:]
	}}
}

type memory struct{ max, used, data int }

func TestCheckGrowthComparesWhatIsLeftWithTheGrowth(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const few, many, endless = 64 << 10, 128 << 20, 1 << 62
	for name, test := range map[string]struct {
		before, now memory
		why         string
	}{
		"little is left":             {memory{many, 0, 0}, memory{many, many - few, 0}, ""},
		"less is left":               {memory{many, 0, 0}, memory{many, many - few + 1, 0}, "it has ended"},
		"it grows":                   {memory{many, 0, 0}, memory{many, 0, few}, "it ends in "},
		"it grows a little":          {memory{many, 0, 0}, memory{many, 0, few - 1}, ""},
		"it will last for centuries": {memory{endless, 0, 0}, memory{endless, 0, few}, ""},
	} {
		client := server.Client(t)
		client.AddHook(memoryOf(test.before, test.now))
		found, err := redisstore.CheckGrowth(ctx, client, time.Millisecond)
		require.NoError(t, err)
		if test.why == "" {
			assert.Empty(t, found, name)
			continue
		}
		require.Len(t, found, 1, name)
		assert.Contains(t, found[0].Why, test.why, name)
	}
}

// A master that has come meanwhile has no growth yet, and may be full. The error of one is that of the call, at once.
func TestCheckGrowthLooksAtEachMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartMasters(t, 2, "--maxmemory", "100mb")
	check := func(hook redis.Hook, wait time.Duration) ([]driver.Finding, error) {
		client := cluster.Client(t)
		client.OnNewNode(func(node *redis.Client) {
			if node.Options().Addr == cluster.Nodes[1].Addr {
				node.AddHook(hook)
			}
		})
		return redisstore.CheckGrowth(ctx, client, wait)
	}
	const terabyte = 1 << 40
	found, err := check(memoryOf(memory{}, memory{terabyte, terabyte, terabyte}), 0)
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, "maxmemory of "+cluster.Nodes[1].Addr, found[0].Setting)
	found, err = check(memoryOf(memory{}, memory{terabyte, terabyte - 1<<20, terabyte}), 0)
	require.NoError(t, err)
	assert.Empty(t, found)

	for at, wait := range []time.Duration{time.Hour, 0} { // nobody waits after the first error
		infos := 0
		_, err := check(givenReplies(func(cmd redis.Cmder) any {
			if cmd.Name() != "info" {
				return nil
			}
			if infos++; infos == at+1 {
				return refusal("NOPERM no right")
			}
			return nil
		}), wait)
		assert.ErrorContains(t, err, "INFO of "+cluster.Nodes[1].Addr+": NOPERM no right")
	}
}

func TestCheckGrowthCanBeInterrupted(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, "--maxmemory", "100mb").Client(t)
	ended, end := context.WithCancel(ctx)
	client.AddHook(&changedReply{command: "info", change: func(redis.Cmder) { end() }})
	_, err := redisstore.CheckGrowth(ended, client, time.Hour)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestCheckSeesThatAnOldPrimaryCouldGoOnAlone(t *testing.T) {
	t.Parallel()
	client, _ := replicated(t)
	assert.Contains(t, settings(t, client), "min-replicas-to-write")
	require.NoError(t, client.ConfigSet(ctx, "min-replicas-to-write", "1").Err())
	options := *client.Options()
	for version, finds := range map[string]bool{"6.0.16": true, "7.0.0": false} {
		of := redis.NewClient(&options)
		defer of.Close()
		of.AddHook(reports(version))
		assert.Equal(t, finds, slices.Contains(settings(t, of), "min-replicas-to-write"), version)
		assert.NotContains(t, settings(t, of, redisstore.WaitReplicas(1, time.Second)), "min-replicas-to-write", version)
		assert.NotContains(t, settings(t, of), "clock of a replica", version)
	}
}

// reports is a hook that makes a server report another version.
type reports string

func (reports) DialHook(next redis.DialHook) redis.DialHook { return next }

func (version reports) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if info, ok := cmd.(*redis.StringCmd); ok && cmd.Name() == "info" {
			info.SetVal(regexp.MustCompile(`redis_version:\S+`).ReplaceAllString(info.Val(), "redis_version:"+string(version)))
		}
		return err
	}
}

func (reports) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A server refuses all rights of a user at once if it does not know one of the commands.
func TestCheckSaysToAllowOnlyCommandsThatTheServerHas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--rename-command", "EVALSHA", "FORBIDDEN")
	for version, sharded := range map[string]bool{"5.0.7": false, "6.2.14": false, "7.0.0": true, "8.0.2": true} {
		client := server.Client(t)
		client.AddHook(reports(version))
		findings, err := redisstore.Check(ctx, client)
		require.NoError(t, err)
		i := slices.IndexFunc(findings, func(f driver.Finding) bool { return f.Setting == "scripts" })
		require.GreaterOrEqual(t, i, 0, "%v", findings)
		assert.Contains(t, findings[i].Fix, "PUBLISH, SUBSCRIBE")
		for _, command := range []string{"SPUBLISH", "SSUBSCRIBE", "SUNSUBSCRIBE"} {
			assert.Equal(t, sharded, strings.Contains(findings[i].Fix, command), "%s on %s", command, version)
		}
	}
}

func TestCheckLooksAtTheClient(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	assert.Equal(t, []string{"Options.ContextTimeoutEnabled"}, settings(t, client))

	cluster := redistest.StartMasters(t, 2)
	for interval, want := range map[time.Duration][]string{
		5 * time.Second:   {"appendonly", "appendonly"},
		5*time.Second + 1: {"ClusterOptions.ClusterStateReloadInterval", "appendonly", "appendonly"},
	} {
		slow := cluster.Client(t, func(o *redis.ClusterOptions) { o.ClusterStateReloadInterval = interval })
		assert.Equal(t, want, settings(t, slow), interval)
	}
}

// A request would find out what a call of Check does not.
func TestCheckSeesThatAnyOfItsCallsIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	require.Empty(t, settings(t, server.Client(t))) // the server learns the scripts
	for at := range 5 {
		client, sent := server.Client(t), 0
		client.AddHook(givenReplies(func(cmd redis.Cmder) any {
			if cmd.Name() != "evalsha" {
				return nil
			}
			if sent++; sent == at+1 {
				return refusal("NOPERM no right")
			}
			return nil
		}))
		findings, err := redisstore.Check(ctx, client)
		require.NoError(t, err)
		if at == 4 {
			assert.Empty(t, findings)
			assert.Equal(t, 4, sent, "each of its scripts was refused once")
			break
		}
		require.Len(t, findings, 1, "script %d", at+1)
		assert.Equal(t, "NOPERM no right", findings[0].Found)
	}
}

func TestTwoProcessesCheckOneServerAtTheSameTime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	client, others := server.Client(t), 0
	client.AddHook(&changedReply{command: "pexpiretime", change: func(redis.Cmder) { // after its claim
		others++
		assert.Empty(t, settings(t, server.Client(t)), "the other")
	}})
	assert.Empty(t, settings(t, client))
	assert.Equal(t, 1, others)
}

func TestCheckOfAServerThatIsAwayIsAnError(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	server.Kill()
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := redisstore.Check(short, client)
	assert.Error(t, err)
}

func TestWhatCheckSaysToAllowIsEnough(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client(t)
	if !server.Knows(t, "ACL") {
		t.Skip("this server has no users with rights")
	}
	channels := admin.Do(ctx, "ACL", "SETUSER", "app", "&idem:*").Err() == nil // Redis 6.0 has no rights to channels
	allow := func(commands ...string) {
		rules := []any{"ACL", "SETUSER", "app", "reset", "on", ">secret", "~idem:*"}
		if channels {
			rules = append(rules, "&idem:*")
		}
		for _, command := range commands {
			rules = append(rules, "+"+command)
		}
		require.NoError(t, admin.Do(ctx, rules...).Err())
	}
	allow("info")
	client := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
	findings, err := redisstore.Check(ctx, client)
	require.NoError(t, err)
	i := slices.IndexFunc(findings, func(f driver.Finding) bool { return f.Setting == "scripts" })
	require.GreaterOrEqual(t, i, 0, "%v", findings)
	allow(regexp.MustCompile("[A-Z]{3,}").FindAllString(findings[i].Fix, -1)...)

	store := redisstore.New(client)
	c := claimed(t, store, time.Minute)
	c.Steps, c.LateRetry = true, time.Hour
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stop, err := store.Watch(bounded, c.Key, func() {})
	require.NoError(t, err)
	defer stop()
	require.NoError(t, store.Extend(ctx, c))
	require.NoError(t, store.Checkpoint(ctx, c, "step", nil))
	require.NoError(t, store.Complete(ctx, c, []byte("kept")))
	for _, script := range []string{lua.Begin, lua.Extend, lua.Complete, lua.Fail, lua.Step, lua.Reopen} {
		for _, call := range regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`).FindAllStringSubmatch(script, -1) {
			assert.True(t, strings.Contains(findings[i].Fix, call[1]) || !server.Knows(t, call[1]), call[1])
		}
	}
	c.WantRemaining = true
	entry, err := store.Begin(ctx, c)
	require.NoError(t, err)
	assert.Equal(t, driver.Completed, entry.State)

	_, err = store.Look(ctx, c.Key)
	assert.Error(t, err, "the user of a service needs less than that of an operator")
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	more := regexp.MustCompile(`(?s)must be allowed(.*?)beside`).FindSubmatch(page)
	require.NotNil(t, more)
	allow(regexp.MustCompile("[A-Z]{3,}").FindAllString(findings[i].Fix+string(more[1]), -1)...)
	running := claimed(t, store, time.Minute)
	assert.NoError(t, store.Scan(ctx, driver.Filter{}, func(seen driver.Record) bool {
		if seen.Name != running.Key {
			assert.NoError(t, store.Forget(ctx, seen))
		}
		return true
	}))
	entry, err = store.Begin(ctx, c)
	require.NoError(t, err)
	assert.Equal(t, driver.Claimed, entry.State)
}
