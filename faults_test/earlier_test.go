package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/lua"
)

// An earlier version of the scripts, which notes nobody and knows no operations, works on the same records as this one, as
// in a deploy that replaces one process after the other.

// earlierScripts are those in testdata/scripts, by the text of this version's.
func earlierScripts(tb testing.TB) map[string]string {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("testdata/scripts", name+".lua"))
		require.NoError(tb, err)
		return string(text)
	}
	texts := map[string]string{}
	for text, name := range map[string]string{
		lua.Begin: "begin", lua.Extend: "extend", lua.Complete: "complete", lua.Fail: "fail", lua.Step: "step",
	} {
		texts[text] = strings.Replace(read(name), "-- [record.lua]\n", read("record"), 1)
	}
	return texts
}

// earlierAnswers gives begin's answers the operation, and knows a fail without a run as one that is free.
type earlierAnswers struct{ redis.Hook }

func (earlierAnswers) DialHook(next redis.DialHook) redis.DialHook { return next }

func (earlierAnswers) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) == 10 && args[7] == "2" {
			args[7] = "1"
		}
		err := next(ctx, cmd)
		if c, ok := cmd.(*redis.Cmd); ok && err == nil {
			if word, _ := c.Val().(string); strings.HasPrefix(word, "claimed ") {
				c.SetVal(word + " 0")
			}
		}
		return err
	}
}

func (earlierAnswers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// deploy is one key in the time of a deploy, and what must hold of it whichever version answers.
type deploy struct {
	*testing.T
	client  *redis.Client
	stores  [2]driver.Store // of the earlier version, of this one
	random  *rand.Rand
	base    driver.Claim
	log     []string
	highest int64

	owner   *process // of the claim
	gone    bool     // its lease is over
	bound   bool     // an earlier run may have had effects
	steps   []string // kept by runs of this operation
	outcome string
}

// process is a run in a process of one version.
type process struct {
	version int
	claim   driver.Claim
	worked  bool // kept a step
}

func (d *deploy) store(p *process) driver.Store { return d.stores[p.version] }

func (d *deploy) require(ok bool, format string, args ...any) {
	d.Helper()
	if !ok {
		d.Fatalf("%s, after\n%s", fmt.Sprintf(format, args...), strings.Join(d.log, "\n"))
	}
}

func (d *deploy) note(p *process, format string, args ...any) {
	d.log = append(d.log, fmt.Sprintf("version %d, %x: %s", p.version, p.claim.Owner[:2], fmt.Sprintf(format, args...)))
}

// newProcess is one that begins, has not got the claim yet, and may not ask for it at all.
func (d *deploy) newProcess() *process {
	p := &process{version: d.random.Intn(2), claim: d.base}
	d.random.Read(p.claim.Owner[:])
	return p
}

// begins lets a new process ask for the key.
func (d *deploy) begins() {
	p := d.newProcess()
	entry, err := d.store(p).Begin(ctx, p.claim)
	d.note(p, "begin %s %v", entry.State, err)
	d.require(err == nil, "begin: %v", err)
	switch {
	case d.outcome != "":
		d.require(entry.State == driver.Completed && string(entry.Outcome) == d.outcome, "%q is not replayed", d.outcome)
	case d.owner != nil && !d.gone:
		d.require(entry.State == driver.InProgress, "a run is in progress")
	default:
		d.require(entry.State == driver.Claimed, "the key is free")
		d.require(entry.Fence > d.highest, "fence %d after %d", entry.Fence, d.highest)
		d.highest = entry.Fence
		p.claim.Fence, p.claim.Attempt, p.claim.Takeover = entry.Fence, entry.Attempt, entry.Takeover
		d.bound = d.bound || d.owner != nil
		d.owner, d.gone = p, false
		d.finds()
	}
}

// finds: the run has the steps of earlier ones.
func (d *deploy) finds() {
	steps, err := d.store(d.owner).(driver.Checkpointer).Checkpoints(ctx, d.owner.claim)
	d.note(d.owner, "steps %v %v, kept %v", len(steps), err, d.steps)
	d.require(err == nil, "steps: %v", err)
	for _, step := range d.steps {
		d.require(steps[step] != nil, "step %s is gone", step)
	}
}

// ends ends a claim or its lease in one of the ways.
func (d *deploy) ends() {
	p, store := d.owner, d.store(d.owner)
	switch d.random.Intn(6) {
	case 0:
		p.claim.Steps = true
		d.outcome = fmt.Sprint("outcome ", d.random.Int())
		err := store.Complete(ctx, p.claim, []byte(d.outcome))
		d.note(p, "complete %v", err)
		d.require(err == nil, "complete: %v", err)
	case 1, 2: // it vanishes
		d.note(p, "vanishes")
		d.gone = true
		for _, key := range d.client.Keys(ctx, "idem:*}").Val() {
			require.NoError(d, d.client.SetRange(ctx, key, 58, "0000000000000001").Err())
		}
	default:
		f := driver.Failure{Cause: strings.Repeat("cause ", d.random.Intn(30)), NoEffects: !p.worked && d.random.Intn(2) == 0}
		f.NotRun = f.NoEffects && d.random.Intn(2) == 0
		err := store.Fail(ctx, p.claim, f)
		d.note(p, "fail %+v %v", f, err)
		d.require(err == nil, "fail: %v", err)
		d.owner, d.bound = nil, d.bound || !f.NoEffects
	}
}

// withdraws sends the fail of a process whose begin had no answer, and then perhaps that begin, which must not get what
// another has.
func (d *deploy) withdraws() {
	p := d.newProcess()
	err := d.store(p).Fail(ctx, p.claim, driver.Failure{Cause: "begin had no answer", NoEffects: true, NotRun: true})
	d.note(p, "withdraws %v", err)
	d.require(err == nil || errors.Is(err, core.ErrLost), "fail: %v", err)
	if p.version == 1 {
		_, err = d.store(p).Begin(ctx, p.claim)
		d.note(p, "begins too late %v", err)
		d.require(errors.Is(err, core.ErrLost) || d.outcome != "", "a withdrawn begin: %v", err)
	}
}

// works lets the owner go on.
func (d *deploy) works() {
	p, store := d.owner, d.store(d.owner)
	if d.random.Intn(2) == 0 {
		err := store.Extend(ctx, p.claim)
		d.note(p, "extend %v", err)
		d.require(err == nil, "extend: %v", err)
		d.gone = false
		return
	}
	step := fmt.Sprint("step ", d.random.Intn(3))
	err := store.(driver.Checkpointer).Checkpoint(ctx, p.claim, step, []byte("done"))
	d.note(p, "%s %v", step, err)
	d.require(err == nil, "step: %v", err)
	p.worked = true
	if !slices.Contains(d.steps, step) {
		d.steps = append(d.steps, step)
	}
}

// TestARollingDeployOfTheScriptsRunsNothingTwice lets processes of both versions compete for one key, in random order.
func TestARollingDeployOfTheScriptsRunsNothingTwice(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	earlier := server.Client(t)
	earlier.AddHook(redistest.OtherScripts(earlierScripts(t), redistest.Translation{}))
	earlier.AddHook(earlierAnswers{})
	client := server.Client(t)
	stores := [2]driver.Store{redisstore.New(earlier, redisstore.Scripts()), redisstore.New(client, redisstore.Scripts())}
	for _, seed := range deploySeeds() {
		require.NoError(t, client.FlushDB(ctx).Err())
		d := &deploy{T: t, client: client, stores: stores, random: rand.New(rand.NewSource(seed)), base: storetest.NewClaim(time.Hour, 2*time.Hour)}
		d.log = []string{fmt.Sprint("seed ", seed)}
		for range 30 {
			switch choice := d.random.Intn(5); {
			case choice == 0:
				d.withdraws()
			case d.owner == nil || d.outcome != "" || choice == 1:
				d.begins()
			case choice == 2:
				d.ends()
			default:
				d.works()
			}
		}
	}
}

func deploySeeds() (seeds []int64) {
	n := 300
	if os.Getenv("SOAK") != "" {
		n = 20_000
	}
	first := time.Now().UnixNano()
	for i := range n {
		seeds = append(seeds, first+int64(i))
	}
	return seeds
}
