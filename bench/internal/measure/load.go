package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/bench/internal/report"
	"github.com/go-idem/idem/bench/internal/subject"
)

// connections is how many clients send requests at once, each one request at a time.
const connections = 64

// workload is the sequence of keys that a client sends.
type workload struct {
	name      string
	isReplays bool
}

// The workloads of loads and duels.
var (
	allNew     = workload{"all new keys", false}
	allReplays = workload{"all replays", true}
)

// loads plays every workload at every subject, in each round in another order.
func loads(b *Bench) (rows []report.Row, err error) {
	workloads := []workload{allNew, allReplays}
	found := map[workload]map[*subject.Subject][]round{allNew: {}, allReplays: {}}
	for n := range b.Plan.Rounds {
		for _, w := range workloads {
			for _, s := range rotated(b.subjects, n*len(b.subjects)/b.Plan.Rounds) {
				r, err := b.load(s, w, b.Plan.Round)
				if err != nil {
					return nil, fmt.Errorf("%s, %s, %s: %w", s.Framework, s.Name, w.name, err)
				}
				found[w][s] = append(found[w][s], r)
			}
		}
	}
	for _, w := range workloads {
		for _, s := range b.subjects {
			rows = append(rows, b.loadRow(w, s, found[w]))
		}
	}
	return rows, nil
}

// loadRow returns medians, and medians of the ratios to others in the same round.
func (b *Bench) loadRow(w workload, s *subject.Subject, rounds map[*subject.Subject][]round) report.Row {
	row := report.Row{Name: []string{s.Framework, w.name, s.Name}, Figures: figures(rounds[s])}
	for figure, name := range map[string]string{"of_bare": subject.Bare, "of_raw": subject.Raw, "of_library": s.Beside} {
		if all := ratios(rounds[s], rounds[b.find(s.Framework, name)], perSecond); len(all) > 0 {
			row.Figures[figure] = median(all)
		}
	}
	return row
}

// load serves a subject on an empty server, and plays a workload at it for a while.
func (b *Bench) load(s *subject.Subject, w workload, lasting time.Duration) (round, error) {
	t, err := b.serve(s, &subject.Payments{})
	if err != nil {
		return round{}, err
	}
	defer t.stop()
	players := make([]*player, connections)
	for i := range players {
		players[i] = newPlayer(t, w, i)
	}
	if err := together(players, (*player).warm); err != nil {
		return round{}, err
	}
	debug.FreeOSMemory() // of the subject before, which would be returned while this one is measured
	before, began := b.used(), time.Now()
	err = together(players, func(p *player) error { return p.play(began.Add(lasting)) })
	took, after := time.Since(began), b.used()
	var latencies []time.Duration
	for _, p := range players {
		latencies = append(latencies, p.latencies...)
	}
	return newRound(latencies, took, before, after), err
}

// together calls f of all players at once.
func together(players []*player, f func(*player) error) error {
	errs := make([]error, len(players))
	var all sync.WaitGroup
	for i, p := range players {
		all.Go(func() { errs[i] = f(p) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// target is a service under load.
type target struct {
	client   *fasthttp.HostClient
	unmarked bool // its replays carry no marker
	stop     func()
}

// newTarget returns the service at an address. Its stop closes the connections of the clients.
func newTarget(addr string) *target {
	client := &fasthttp.HostClient{
		Addr: addr, MaxConns: connections, NoDefaultUserAgentHeader: true, ReadTimeout: 20 * time.Second,
	}
	return &target{client: client, stop: client.CloseIdleConnections}
}

// serve serves a subject with an empty Redis behind it.
func (b *Bench) serve(s *subject.Subject, payments *subject.Payments) (*target, error) {
	if err := b.client.FlushAll(context.Background()).Err(); err != nil {
		return nil, err
	}
	addr, stop, err := s.Mount(subject.Clients{Plain: b.client, Auto: b.auto}, payments).Listen()
	if err != nil {
		return nil, err
	}
	t := newTarget(addr)
	t.unmarked, t.stop = s.Unmarked, func() { t.client.CloseIdleConnections(); stop() }
	return t, nil
}

// player is one client: it sends a request when it has the response to the one before.
type player struct {
	target    *target
	fresh     *subject.Keys // of new requests
	kept      *subject.Keys // of replays: warm sends the first of them
	workload  workload
	sent      int64
	request   *fasthttp.Request
	response  *fasthttp.Response
	latencies []time.Duration
}

// keptKeys is how many keys a player repeats. No two players share one.
const keptKeys = 8

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
	n := int64(1)
	if p.workload.isReplays {
		n = keptKeys
	}
	for n := range n {
		if err := p.post(p.kept.At(n), false); err != nil {
			return err
		}
	}
	return nil
}

// play sends requests until a time.
func (p *player) play(until time.Time) error {
	for now := time.Now(); now.Before(until); {
		if err := p.next(); err != nil {
			return err
		}
		answered := time.Now()
		p.latencies = append(p.latencies, answered.Sub(now))
		now = answered
	}
	return nil
}

// next sends one request of the workload.
func (p *player) next() error {
	if !p.workload.isReplays {
		return p.post(p.fresh.Next(), false)
	}
	p.sent++
	return p.post(p.kept.At(p.sent%keptKeys), true)
}

// post sends one request, and fails if the response is not what it must be.
func (p *player) post(key []byte, isReplay bool) error {
	p.request.Header.SetBytesV(subject.KeyHeader, key)
	if err := p.target.client.Do(p.request, p.response); err != nil {
		return err
	}
	if p.response.StatusCode() != fasthttp.StatusCreated || len(p.response.Body()) != subject.ResponseBytes {
		return fmt.Errorf("the response is %d %q", p.response.StatusCode(), p.response.Body())
	}
	if isMarked := len(p.response.Header.Peek(subject.Marker)) > 0; !p.target.unmarked && isReplay != isMarked {
		return fmt.Errorf("%s is there: %t, a replay: %t", subject.Marker, isMarked, isReplay)
	}
	return nil
}
