package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

const connections = 64

// workload is the keys that a client sends, one after the other.
type workload struct {
	name    string
	percent int64 // of requests that are replays: a divisor of 100, or 0
}

var workloads = []workload{{"all new keys", 0}, {"all replays", 100}, {"90 % new, 10 % replays", 10}}

// isReplay tells what the request is that follows so many others.
func (w workload) isReplay(sent int64) bool { return sent*w.percent%100 < w.percent }

// round is one subject in one round.
type round struct {
	subject   *subject
	requests  int
	perSecond float64
	p50, p99  time.Duration
	cpu       float64 // µs of this process per request
	serverCPU float64 // µs of the server

	// Of crowds only.
	whole     time.Duration // until every client has its 201
	runs      int64         // of the handler
	conflicts int           // 409 answers, after which the client asks again
}

// measureLoads plays every workload at every subject, in each round in another order.
func measureLoads(b *bench) error {
	b.results.loads = map[string][]round{}
	for n := range b.plan.rounds {
		for _, w := range workloads {
			for _, s := range b.turn(n) {
				r, err := b.load(s, w)
				if err != nil {
					return fmt.Errorf("%s, %s, %s: %w", s.framework, s.name, w.name, err)
				}
				b.results.loads[w.name] = append(b.results.loads[w.name], r)
			}
		}
	}
	return nil
}

// turn returns the subjects in the order of a round.
func (b *bench) turn(round int) []*subject {
	return rotated(b.subjects, round*len(b.subjects)/b.plan.rounds)
}

// load serves a subject on an empty server, and plays a workload at it.
func (b *bench) load(s *subject, w workload) (round, error) {
	var payments shop
	t, err := b.serve(s, &payments, connections)
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
	debug.FreeOSMemory() // of the subject before, which would go back while this one is measured
	before, began := b.used(), time.Now()
	err = together(players, func(p *player) error { return p.play(began.Add(b.plan.slice)) })
	r, after := newRound(s, players, time.Since(began)), b.used()
	r.cpu, r.serverCPU = perRequest(after.own-before.own, r), perRequest(after.server-before.server, r)
	return r, err
}

func newRound(s *subject, players []*player, took time.Duration) round {
	var all []time.Duration
	for _, p := range players {
		all = append(all, p.latencies...)
	}
	slices.Sort(all)
	return round{
		subject: s, requests: len(all), perSecond: float64(len(all)) / took.Seconds(),
		p50: quantile(all, 0.5), p99: quantile(all, 0.99),
	}
}

func perRequest(used time.Duration, r round) float64 {
	return used.Seconds() * 1e6 / float64(r.requests)
}

// together runs f of all players at once.
func together(players []*player, f func(*player) error) error {
	errs := make([]error, len(players))
	var all sync.WaitGroup
	for i, p := range players {
		all.Go(func() { errs[i] = f(p) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// target is a subject that is served.
type target struct {
	subject *subject
	client  *fasthttp.HostClient
	stop    func()
}

// serve serves a subject with an empty server behind it, for so many connections.
func (b *bench) serve(s *subject, payments *shop, connections int) (*target, error) {
	if err := b.client.FlushAll(context.Background()).Err(); err != nil {
		return nil, err
	}
	addr, stop, err := s.mount(b, payments).listen()
	if err != nil {
		return nil, err
	}
	client := &fasthttp.HostClient{
		Addr: addr, MaxConns: connections, NoDefaultUserAgentHeader: true, ReadTimeout: 20 * time.Second,
	}
	return &target{s, client, func() { client.CloseIdleConnections(); stop() }}, nil
}

// player is one client: it sends a request when it has the answer to the last.
type player struct {
	target    *target
	fresh     *keys // of new requests
	kept      *keys // of replays: the first of them are answered before the measurement
	workload  workload
	sent      int64
	request   *fasthttp.Request
	response  *fasthttp.Response
	latencies []time.Duration
}

// keptKeys is how many keys a player asks for again and again. No two players share one.
const keptKeys = 8

func newPlayer(t *target, w workload, i int) *player {
	p := &player{
		target: t, workload: w, fresh: newKeys(fmt.Sprintf("fresh-%d", i)), kept: newKeys(fmt.Sprintf("kept-%d", i)),
		request: &fasthttp.Request{}, response: &fasthttp.Response{}, latencies: make([]time.Duration, 0, 1<<12),
	}
	p.request.Header.SetMethod(fasthttp.MethodPost)
	p.request.SetRequestURI("http://" + t.client.Addr + path)
	p.request.Header.SetContentType(mediaType)
	p.request.SetBodyString(requestBody)
	return p
}

// warm opens the connection, and has the answers kept that are asked for again.
func (p *player) warm() error {
	n := int64(1)
	if p.workload.percent > 0 {
		n = keptKeys
	}
	for n := range n {
		if err := p.post(p.kept.at(n), false); err != nil {
			return err
		}
	}
	return nil
}

// play sends requests until a time.
func (p *player) play(until time.Time) error {
	for now := time.Now(); now.Before(until); p.sent++ {
		isReplay := p.workload.isReplay(p.sent)
		key := p.fresh.key
		if isReplay {
			key = func() []byte { return p.kept.at(p.sent % keptKeys) }
		}
		if err := p.post(key(), isReplay); err != nil {
			return err
		}
		answered := time.Now()
		p.latencies = append(p.latencies, answered.Sub(now))
		now = answered
	}
	return nil
}

// post sends one request, and holds the answer to what it must be.
func (p *player) post(key []byte, isReplay bool) error {
	status, err := p.ask(key)
	if err != nil {
		return err
	}
	if status != fasthttp.StatusCreated || len(p.response.Body()) != answerBytes {
		return fmt.Errorf("answered %d %q", status, p.response.Body())
	}
	if m := p.target.subject.marker; m != "" && isReplay != (len(p.response.Header.Peek(m)) > 0) {
		return fmt.Errorf("%s is there: %t, a replay: %t", m, !isReplay, isReplay)
	}
	return nil
}

// ask sends one request and returns the status of its answer.
func (p *player) ask(key []byte) (int, error) {
	p.request.Header.SetBytesV(keyHeader, key)
	err := p.target.client.Do(p.request, p.response)
	return p.response.StatusCode(), err
}
