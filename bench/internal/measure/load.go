package measure

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"

	"github.com/go-idem/idem/bench/internal/report"
	"github.com/go-idem/idem/bench/internal/subject"
)

// connections is how many clients send requests at once, each one request at a time. There are many more than cores, so that a
// service has a request to handle while others wait for Redis.
const connections = 64

// workload is the sequence of keys that a client sends. No workload mixes new keys and replays: its figures would lie between
// those of the two, and say less.
type workload struct {
	name      string
	isReplays bool
}

// The workloads of loads and duels.
var (
	allNew     = workload{"all new keys", false}
	allReplays = workload{"all replays", true}
)

// loads plays both workloads at every subject, first new keys at all of them and then replays.
//
// The figures are requests in a second and the CPU time for each: of this process, in which client and service run, and of the
// server. of_bare, of_raw and of_library are medians of the ratios of rates to the bare handler, to the two raw script calls, and
// to this library with the same store.
func loads(b *Bench) (rows []report.Row, err error) {
	workloads, n := []workload{allNew, allReplays}, len(b.subjects)
	found, err := inTurns(b.Plan.Rounds, 2*n, func(i int) (map[string]float64, error) {
		return b.load(b.subjects[i%n], workloads[i/n], b.Plan.Round)
	})
	if err != nil {
		return nil, err
	}
	for i, own := range found {
		s, sameWorkload := b.subjects[i%n], found[i/n*n:]
		row := report.Row{Name: []string{s.Framework, workloads[i/n].name, s.Name}, Figures: own.medians()}
		for figure, name := range map[string]string{"of_bare": subject.Bare, "of_raw": subject.Raw, "of_library": s.Beside} {
			if beside := b.find(s.Framework, name); beside >= 0 {
				row.Figures[figure] = median(ratios(own, sameWorkload[beside], "per_second"))
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// load serves a subject on an empty server, and plays a workload at it for a while. Each client waits for its response before it
// sends the next request, so the rate is that of a service that is never idle, and not one that the clients have chosen. The
// clients warm up before the clock starts: connections, pools and scripts are there, and so are the records of replays.
func (b *Bench) load(s *subject.Subject, w workload, lasting time.Duration) (map[string]float64, error) {
	t, err := b.serve(s, &subject.Payments{})
	if err != nil {
		return nil, err
	}
	defer t.stop()
	players, err := newPlayers(t, w, connections, 0)
	if err != nil {
		return nil, err
	}
	debug.FreeOSMemory() // of the subject before, which would be returned while this one is measured
	return costOf(b.client, func() (int, error) {
		until := time.Now().Add(lasting)
		err := together(players, func(p *player) error { return p.play(until) })
		n := 0
		for _, p := range players {
			n += int(p.sent)
		}
		return n, err
	})
}

// together calls f of all players at once.
func together(players []*player, f func(*player) error) error {
	var all errgroup.Group
	for _, p := range players {
		all.Go(func() error { return f(p) })
	}
	return all.Wait()
}

// target is a service under load.
type target struct {
	client   *fasthttp.HostClient
	name     string // of the subject
	unmarked bool   // its replays carry no marker
	stop     func()
}

// newTarget returns the service at an address. Its stop closes the connections of the clients.
func newTarget(addr string) *target {
	client := &fasthttp.HostClient{
		Addr: addr, MaxConns: connections, NoDefaultUserAgentHeader: true, ReadTimeout: 20 * time.Second,
	}
	return &target{client: client, name: addr, stop: client.CloseIdleConnections}
}

// serve serves a subject with an empty Redis behind it, since the clients send the same keys to each subject.
func (b *Bench) serve(s *subject.Subject, payments *subject.Payments) (*target, error) {
	if err := b.client.FlushAll(context.Background()).Err(); err != nil {
		return nil, err
	}
	addr, stop, err := s.Mount(subject.Clients{Plain: b.client, Auto: b.auto}, payments).Listen()
	if err != nil {
		return nil, err
	}
	t := newTarget(addr)
	t.name, t.unmarked, t.stop = s.Framework+", "+s.Name, s.Unmarked, func() { t.client.CloseIdleConnections(); stop() }
	return t, nil
}

// player is one client: it sends a request when it has the response to the one before.
type player struct {
	target   *target
	fresh    *subject.Keys // of new requests
	kept     *subject.Keys // of replays: warm sends the first of them
	workload workload
	sent     int64 // requests of the workload
	request  *fasthttp.Request
	response *fasthttp.Response
}

// keptKeys is how many keys a player repeats. No two players share one: the first requests with it would meet, and one of them
// would wait or be refused.
const keptKeys = 8

// newPlayers returns n clients with consecutive numbers. They are ready to play: each has its connection, and the records of its
// replays are there.
func newPlayers(t *target, w workload, n, first int) ([]*player, error) {
	players := make([]*player, n)
	for i := range players {
		players[i] = newPlayer(t, w, first+i)
	}
	return players, together(players, (*player).warm)
}

// newPlayer returns the client with a number. Clients with different numbers send different keys.
func newPlayer(t *target, w workload, i int) *player {
	p := &player{
		target: t, workload: w, request: &fasthttp.Request{}, response: &fasthttp.Response{},
		fresh: subject.NewKeys(fmt.Sprintf("fresh-%d", i)), kept: subject.NewKeys(fmt.Sprintf("kept-%d", i)),
	}
	p.request.Header.SetMethod(fasthttp.MethodPost)
	p.request.SetRequestURI("http://" + t.client.Addr + subject.Path)
	p.request.Header.SetContentType(subject.MediaType)
	p.request.SetBodyString(subject.RequestBody)
	return p
}

// warm opens the connection, and sends the keys that are repeated.
func (p *player) warm() error {
	for n := range int64(keptKeys) {
		if err := p.post(p.kept.At(n), false); err != nil {
			return err
		}
	}
	return nil
}

// play sends requests until a time.
func (p *player) play(until time.Time) error {
	for time.Now().Before(until) {
		if err := p.next(); err != nil {
			return err
		}
	}
	return nil
}

// next sends one request of the workload.
func (p *player) next() error {
	p.sent++
	if p.workload.isReplays {
		return p.post(p.kept.At(p.sent%keptKeys), true)
	}
	return p.post(p.fresh.At(p.sent), false)
}

// post sends one request, and fails if the response is not what it must be. A subject that refuses requests, or that runs the
// handler again for a replay, would look fast otherwise.
func (p *player) post(key []byte, isReplay bool) error {
	p.request.Header.SetBytesV(subject.KeyHeader, key)
	if err := p.target.client.Do(p.request, p.response); err != nil {
		return fmt.Errorf("%s: %w", p.target.name, err)
	}
	if p.response.StatusCode() != fasthttp.StatusCreated || len(p.response.Body()) != subject.ResponseBytes {
		return fmt.Errorf("%s: the response is %d %q", p.target.name, p.response.StatusCode(), p.response.Body())
	}
	if isMarked := len(p.response.Header.Peek(subject.Marker)) > 0; !p.target.unmarked && isReplay != isMarked {
		return fmt.Errorf("%s: %s is there: %t, a replay: %t", p.target.name, subject.Marker, isMarked, isReplay)
	}
	return nil
}
