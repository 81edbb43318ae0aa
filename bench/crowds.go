package main

import (
	"fmt"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	crowdSize = 100
	crowdWork = 2 * time.Millisecond // of the handler
	crowdRest = 2 * time.Millisecond // of a client after a 409
)

// measureCrowds lets 100 clients send one key at once to every subject.
func measureCrowds(b *bench) error {
	for n := range b.plan.rounds {
		for _, s := range b.turn(n) {
			r, err := b.crowd(s)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", s.framework, s.name, err)
			}
			b.results.crowds = append(b.results.crowds, r...)
		}
	}
	return nil
}

// crowd returns a round for each key that the crowd asks for.
func (b *bench) crowd(s *subject) (rounds []round, err error) {
	payments := shop{work: crowdWork}
	t, err := b.serve(s, &payments, crowdSize)
	if err != nil {
		return nil, err
	}
	defer t.stop()
	players := make([]*player, crowdSize)
	for i := range players {
		players[i] = newPlayer(t, workload{}, i)
	}
	if err := together(players, func(p *player) error { return p.post(p.fresh.key(), false) }); err != nil {
		return nil, err
	}
	shared := newKeys("shared")
	for n := range b.plan.crowds {
		r, err := askTogether(s, players, &payments, shared.at(int64(n)))
		if err != nil {
			return nil, err
		}
		rounds = append(rounds, r)
	}
	return rounds, nil
}

// askTogether lets all players ask for one key until each has its 201.
func askTogether(s *subject, players []*player, payments *shop, key []byte) (round, error) {
	before, began := payments.runs.Load(), time.Now()
	err := together(players, func(p *player) error { return p.insist(key, began) })
	r := newRound(s, players, time.Since(began))
	r.whole, r.runs = time.Since(began), payments.runs.Load()-before
	for _, p := range players {
		r.conflicts += int(p.sent)
	}
	return r, err
}

// insist asks for a key until it has a 201, with a rest after each 409.
func (p *player) insist(key []byte, began time.Time) error {
	p.latencies = p.latencies[:0]
	for p.sent = 0; ; p.sent++ {
		status, err := p.ask(key)
		switch {
		case err != nil:
			return err
		case status == fasthttp.StatusCreated:
			p.latencies = append(p.latencies, time.Since(began))
			return nil
		case status != fasthttp.StatusConflict:
			return fmt.Errorf("answered %d %q", status, p.response.Body())
		}
		time.Sleep(crowdRest)
	}
}
