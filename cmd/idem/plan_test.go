package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPlanExplainsItsSum(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, args string
		want       []string
	}{
		{"the textbook's case", "--rate 1000 --lease 30s --retention 24h --body 512", []string{
			"2,280,000  locks: 30,000 x (40 of key + 36 of owner)", "44,496,000,000  results: 86,400,000 x (512 of body + 3 of status)", "44.5 GB",
			"30,000 claims of 240 bytes", "86,400,000 records of 784 bytes", "two hash tables of 134,217,728 buckets", "= 69,892,283,648  bytes: 69.89 GB",
		}},
		{"a quick handler holds fewer claims, and the locks stay", "--handler 50ms", []string{"= 50 claims of 240 bytes", "locks: 30,000 x"}},
		{"an outcome is compressed", "--ratio 0.5", []string{"An outcome is 287 bytes", "records of 528 bytes"}},
		{"no header fields", "--headers 0", []string{"An outcome is 522 bytes"}},
		{"a Redis with its own jemalloc", "--quantum 8", []string{"claims of 216 bytes", "records of 760 bytes"}},
		{"as JSON", "--json", []string{`{"bytes":69892283648,"claim_bytes":240,"outcome_bytes":784}`}},
	} {
		got := call(t, "", nil, append([]string{"plan"}, strings.Fields(c.args)...)...)
		assert.Equal(t, 0, got.code, c.name)
		for _, want := range c.want {
			assert.Contains(t, got.stdout, want, c.name)
		}
	}
}

func TestPlanSimulatesACluster(t *testing.T) {
	t.Parallel()
	for args, want := range map[string][]string{
		"--rate 1000000": {"by CPU 32, by memory 2341, by network 2; here 2341", "Redis Cluster is made for at most 1,000", "and 2336 more"},
		"--rate 1000000 --batches --server valkey --nodes 30": {"by CPU 7", "here 30"},
		"--nodes 3 --json": {`"masters":{"for_cpu":1,"for_memory":3,"for_network":1}`, `"slots":5461`, `"lost_outcomes":`},
		"--nodes 3 --wait": {"No record is lost"},
		"--nodes 3 --node-timeout 2s --read-timeout 1s":       {"get 503 for 2.5s to 7s"},
		"--nodes 3 --node-timeout 2s --reload 3s --json":      {`"shortest_outage_seconds":2.5,"longest_outage_seconds":13.0`},
		"--nodes 3 --away 5s":                                 {"get 503 for 5s,", "up to 6 times"},
		"--nodes 3 --away 2m":                                 {"After a minute it gives up, with 54% of them"},
		"--nodes 3":                                           {"With cluster-require-full-coverage yes, the default, those of other keys get 503 for 1s"},
		"--nodes 3 --partial":                                 {"With cluster-require-full-coverage no, requests of other keys notice nothing."},
		"--nodes 3 --tenant 0.5":                              {"A tenant with 50% of all new keys has 49."},
		"--rate 100000 --retention 1h --zipf 1.2 --replays 2": {"by CPU 9"},
		"--rate 100000 --retention 1h --replays 2":            {"by CPU 6"},
		"--nodes 501":                                         {"Redis Cluster is made for at most 1,000 nodes, replicas included"},
	} {
		got := call(t, "", nil, append([]string{"plan", "--simulate"}, strings.Fields(args)...)...)
		assert.Equal(t, 0, got.code, got.stderr)
		for _, part := range want {
			assert.Contains(t, got.stdout, part, args)
		}
	}
}

func TestPlanNamesABadFlag(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--rate 0":                    "--rate 0: must be above 0",
		"--rate NaN":                  "--rate NaN: must be above 0",
		"--lease 24h":                 "--lease 24h0m0s: must be above 0 and less than --retention",
		"--handler -1s":               "--handler -1s: must be above 0",
		"--body -1":                   "--body -1: must be 0 to 512 MiB",
		"--headers -1":                "--headers -1: must be 0 to 1 MiB",
		"--ratio 1.1":                 "--ratio 1.1: must be above 0 and at most 1",
		"--quantum 32":                "--quantum 32: must be 8 or 16",
		"--rate 1e9 --body 536870912": "--retention 24h0m0s: must be so that all is less than 1e18 bytes",
		"--bodies 1":                  "-bodies",
		"512":                         "plan takes no arguments",

		"--simulate --nodes 1001":                                   "--nodes 1001: must be 0 to 1000",
		"--simulate --rate 1e8":                                     "--rate 1e+08: must be at most 1e7 with --simulate",
		"--simulate --replays -1":                                   "--replays -1: must be 0 to 100",
		"--simulate --hottest 1":                                    "--hottest 1: must be 0 or above, and below 1",
		"--simulate --busy 0":                                       "--busy 0: must be above 0",
		"--simulate --node-memory 1":                                "--node-memory 1: must be at least 1 MiB",
		"--simulate --node-network 1":                               "--node-network 1: must be at least 1e6",
		"--simulate --lag 2m":                                       "--lag 2m0s: must be 0 to 1m",
		"--simulate --away -1s":                                     "--away -1s: must be 0 to 1h",
		"--simulate --zipf -1":                                      "--zipf -1: must be 0 to 3",
		"--simulate --zipf NaN":                                     "--zipf NaN: must be 0 to 3",
		"--simulate --zipf 4":                                       "above that nearly all replays are of one key, so use --hottest for it",
		"--simulate --tenant 1.1":                                   "--tenant 1.1: must be 0 to 1",
		"--simulate --node-timeout 0":                               "--node-timeout 0s: must be 100ms to 1h",
		"--simulate --reload 0":                                     "--reload 0s: must be 10ms to 1h",
		"--simulate --read-timeout 0":                               "--read-timeout 0s: must be 10ms to 1h",
		"--simulate --zipf 1 --replays 0":                           "--zipf 1: must be 0 if --replays is 0, since it spreads replays; or set --replays above 0",
		"--simulate --zipf 3 --replays 5 --rate 1e5 --retention 1h": "so lower --zipf or --replays, too",
		"--simulate --svg /nowhere/a.svg":                           "--svg: open /nowhere/a.svg: no such file or directory",
		"--svg a.svg":                                               "--svg a.svg: needs --simulate",
		"--simulate --seconds 0":                                    "--seconds 0: must be 1 to 60",
		"--simulate --server dynamodb":                              "--server dynamodb: must be redis or valkey",
		"--simulate --quantum 3":                                    "--quantum 3: must be 8 or 16",

		"--retention -1h": "--retention -1h0m0s: must be above 0",
		"--rate 1e9 --retention 1h --handler 1000000h":                    "--handler 1000000h0m0s: must be so that all is less than 1e18 bytes",
		"--simulate --busy 1e-300":                                        "--busy 1e-300: must be so much that 16384 masters suffice, as many as a Cluster has slots",
		"--simulate --rate 1e6 --node-memory 1048576":                     "--node-memory 1048576: must be so much that 16384 masters suffice",
		"--simulate --body 536870912 --node-network 1e6":                  "--node-network 1e+06: must be so much that 16384 masters suffice",
		"--simulate --hottest 0.999":                                      "--busy 0.5: must be so much that 16384 masters suffice",
		"--simulate --nodes 3 --hottest 0.9999999999999999":               "the replays of --hottest all go to one of them",
		"--simulate --rate 1e7 --retention 1m --seconds 60 --replays 100": "--seconds 60: must be so few that at most 1e9 requests are drawn",
		"--simulate --wait --batches":                                     "--batches: redisstore.Batch has no effect with --wait: leave one of them out",
	} {
		got := call(t, "", nil, append([]string{"plan"}, strings.Fields(args)...)...)
		assert.Equal(t, badUsage, got.code, args)
		assert.Contains(t, got.stderr, want)
		assert.Empty(t, got.stdout, args)
	}
}
