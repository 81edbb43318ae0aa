package measure

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/bench/internal/report"
	"github.com/go-idem/idem/bench/internal/subject"
)

// sizes are the lengths of response bodies, in bytes.
var sizes = []int{512, 4 << 10, 64 << 10}

// pipelined is how many calls come to a busy server at once.
const pipelined = 50

// times are µs of the server per call, by the name of a figure, with a value for each round.
type times map[string][]float64

// medians returns the median of each figure.
func (t times) medians() map[string]float64 {
	all := map[string]float64{}
	for figure := range maps.Keys(t) {
		all[figure] = median(t[figure])
	}
	return all
}

// scripts reads from the server how long its commands take. Calls that come one at a time find the server as in a quiet
// service, and calls in pipelines as in a busy one.
func scripts(b *Bench) (rows []report.Row, err error) {
	for _, size := range sizes {
		found := make([]times, len(subject.Layouts))
		for n := range b.Plan.Scripts {
			for k := range found {
				i := (k + n) % len(found)
				if found[i] == nil {
					found[i] = times{}
				}
				calls := max(b.Plan.Calls*512/size, 100)
				for suffix, together := range map[string]int{"_us": 1, "_busy_us": pipelined} {
					if err := found[i].add(b.client, subject.Layouts[i], size, calls, together, suffix); err != nil {
						return nil, fmt.Errorf("%s: %w", subject.Layouts[i].Name, err)
					}
				}
			}
		}
		for i, l := range subject.Layouts {
			rows = append(rows, report.Row{Name: []string{sizeName(size), l.Name}, Figures: found[i].medians()})
		}
	}
	return rows, b.client.FlushAll(context.Background()).Err()
}

// add adds a round of n calls on new keys, which are gone afterwards.
func (t times) add(client *redis.Client, l subject.Layout, size, n, together int, suffix string) error {
	ctx, body := context.Background(), subject.Body(size)
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("call-%038d", i)
	}
	for _, c := range []struct {
		figure string
		send   func(to redis.Cmdable, key string)
	}{
		{"begin", func(to redis.Cmdable, key string) { l.Begin(ctx, to, key) }},
		{"complete", func(to redis.Cmdable, key string) { l.Complete(ctx, to, key, body) }},
		{"replay", func(to redis.Cmdable, key string) { l.Replay(ctx, to, key, size) }},
	} {
		usec, err := serverTime(client, []string{"evalsha", "get"}, n, grouped(client, names, together, c.send))
		if err == nil && c.figure == "begin" && l.Learn != nil && together > 1 {
			err = l.Learn(ctx, client, names)
		}
		if err != nil {
			return err
		}
		t[c.figure+suffix] = append(t[c.figure+suffix], usec)
	}
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range names {
			p.Del(ctx, l.Keys(name)...)
		}
		return nil
	})
	return err
}

// grouped returns a function that sends the call of a name, in pipelines of so many.
func grouped(client *redis.Client, names []string, together int, send func(to redis.Cmdable, key string)) func(i int) {
	if together == 1 {
		return func(i int) { send(client, names[i]) }
	}
	p := client.Pipeline()
	return func(i int) {
		send(p, names[i])
		if (i+1)%together == 0 || i == len(names)-1 {
			_, _ = p.Exec(context.Background()) // serverTime counts calls that failed
		}
	}
}

// commandStat matches a line of INFO commandstats: name, calls, µs, and failed calls.
var commandStat = regexp.MustCompile(`cmdstat_(\w+):calls=(\d+),usec=(\d+)(?:.*failed_calls=(\d+))?`)

// serverTime is how long the commands of one call take the server on average of n calls, in µs. What a script calls is part of
// the script, so commands must not name commands that only scripts call.
func serverTime(client *redis.Client, commands []string, n int, call func(i int)) (usec float64, err error) {
	ctx := context.Background()
	if err := client.ConfigResetStat(ctx).Err(); err != nil {
		return 0, err
	}
	for i := range n {
		call(i)
	}
	info, err := client.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	for _, found := range commandStat.FindAllStringSubmatch(info, -1) {
		if !slices.Contains(commands, found[1]) {
			continue
		}
		if found[2] != strconv.Itoa(n) || found[4] != "" && found[4] != "0" {
			return 0, fmt.Errorf("not each of %d calls went well: %s", n, found[0])
		}
		total, _ := strconv.ParseFloat(found[3], 64) // digits only
		usec += total
	}
	return usec / float64(n), nil
}
