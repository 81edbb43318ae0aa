package measure

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/bench/internal/report"
	"github.com/go-idem/idem/bench/internal/subject"
)

// size is a length of a response body.
type size struct {
	name  string
	bytes int
}

// sizes are those of every table by size. From 2 KiB on a replay of this library reads the record by a second command.
var sizes = []size{{"512 B", 512}, {"4 KiB", 4 << 10}, {"64 KiB", 64 << 10}}

// pipelined is how many calls come to a busy server at once.
const pipelined = 50

// scripts reads from the server how long its commands take, which leaves out the network and the client. Calls that come one at a
// time find the server as in a quiet service: it waits before each. Calls in pipelines find it as in a busy one.
//
// The figures are the µs of a claim (begin), of an outcome (complete) and of a replay, those of a busy server with "busy".
func scripts(b *Bench) (rows []report.Row, err error) {
	for _, s := range sizes {
		calls := max(b.Plan.Calls*512/s.bytes, 100)
		found, err := inTurns(b.Plan.Scripts, len(subject.Layouts), func(i int) (map[string]float64, error) {
			figures := map[string]float64{}
			err := timeCalls(figures, "_us", b.client, subject.Layouts[i], s.bytes, calls, 1)
			if err == nil {
				err = timeCalls(figures, "_busy_us", b.client, subject.Layouts[i], s.bytes, calls, pipelined)
			}
			return figures, err
		})
		if err != nil {
			return nil, err
		}
		for i, l := range subject.Layouts {
			rows = append(rows, report.Row{Name: []string{s.name, l.Name}, Figures: found[i].medians()})
		}
	}
	return rows, b.client.FlushAll(context.Background()).Err()
}

// timeCalls measures n claims of new keys, then their outcomes, then a replay of each, so many together. One kind of call comes
// after the other, because the server counts the calls of all scripts together. The keys are gone afterwards, so that each round
// finds as many as the one before.
func timeCalls(figures map[string]float64, suffix string, client *redis.Client, l subject.Layout, size, n, together int) error {
	ctx, kept := context.Background(), l.Kept(subject.Body(size))
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("call-%038d", i)
	}
	for _, c := range []struct {
		figure string
		send   func(to redis.Cmdable, key string)
	}{
		{"begin", func(to redis.Cmdable, key string) { l.Begin(ctx, to, key) }},
		{"complete", func(to redis.Cmdable, key string) { l.Complete(ctx, to, key, kept) }},
		{"replay", func(to redis.Cmdable, key string) { l.Replay(ctx, to, key, size) }},
	} {
		sent := []string{"evalsha"}
		if c.figure == "replay" && l.GetsFrom > 0 && size >= l.GetsFrom {
			sent = append(sent, "get")
		}
		usec, err := serverTime(client, names, sent, together, c.send)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", l.Name, c.figure, err)
		}
		figures[c.figure+suffix] = usec
	}
	return pipeline(client, names, func(to redis.Cmdable, key string) { to.Del(ctx, l.Keys(key)...) })
}

// pipeline sends the calls of all names in one round trip. It returns the first error of a call.
func pipeline(client *redis.Client, names []string, send func(to redis.Cmdable, name string)) error {
	_, err := client.Pipelined(context.Background(), func(p redis.Pipeliner) error {
		for _, name := range names {
			send(p, name)
		}
		return nil
	})
	return err
}

// commandStat matches a line of INFO commandstats: the command, its calls, µs, and failed calls.
var commandStat = regexp.MustCompile(`cmdstat_(\w+):calls=(\d+),usec=(\d+)(?:.*failed_calls=(\d+))?`)

// serverTime is how long the commands of the call of a name take the server on average, in µs. sent are the commands that the
// client sends: the server also counts those that a script calls, and their time is in that of the script. serverTime fails
// unless each call ran each of the commands once.
func serverTime(client *redis.Client, names, sent []string, together int, send func(to redis.Cmdable, name string)) (float64, error) {
	ctx := context.Background()
	if err := client.ConfigResetStat(ctx).Err(); err != nil {
		return 0, err
	}
	for group := range slices.Chunk(names, together) {
		_ = pipeline(client, group, send) // the numbers below say whether a call failed
	}
	info, err := client.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	lines := map[string][]string{} // by the command
	for _, line := range commandStat.FindAllStringSubmatch(info, -1) {
		lines[line[1]] = line
	}
	usec := 0.0
	for _, command := range sent {
		line := lines[command]
		if line == nil || line[2] != strconv.Itoa(len(names)) || line[4] != "" && line[4] != "0" {
			return 0, fmt.Errorf("not each of %d calls of %s went well: %q", len(names), command, line)
		}
		total, _ := strconv.ParseFloat(line[3], 64) // digits only
		usec += total
	}
	return usec / float64(len(names)), nil
}
