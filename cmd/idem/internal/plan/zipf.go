package plan

import (
	"math"
	"math/rand/v2"
)

// maxZipf is the largest exponent. With it the most popular of many keys has 83 % of the replays.
const maxZipf = 3

// maxPopular is how many of the most popular keys are drawn one by one. The others have so few replays each that these are spread as
// evenly as new keys are.
const maxPopular = 10_000

// popular is the keys that many replays meet in.
type popular struct {
	keys []popularKey
	upTo []float64 // the replays in a second of the popular keys in all slots below this one; nil if there are none
	rest float64   // the part of the replays that are of other keys
}

// popularKey is a key with more replays than others, and how many those are in a second.
type popularKey struct {
	slot    int
	replays float64
}

// popular returns the keys that have more replays than others. The keys of a retention are ranked, and the one of rank r gets replays
// in proportion to 1/r^Zipf. The popular keys, and their slots, are the same in all seconds. math/rand/v2 has a Zipf distribution, too,
// but only for exponents above 1, and real ones are often below.
func (c Cluster) popular() popular {
	if c.Zipf == 0 {
		return popular{rest: 1}
	}
	random := rand.New(rand.NewPCG(c.Seed, ^c.Seed)) // #nosec G404: it simulates
	all := keys(c.Load.Rate, c.Load.Retention)
	drawn := min(all, maxPopular)
	sum := weights(all, c.Zipf)
	p := popular{rest: 1, upTo: make([]float64, slots+1)}
	for rank := 1; rank <= drawn; rank++ {
		part := math.Pow(float64(rank), -c.Zipf) / sum
		key := popularKey{random.IntN(slots), part * c.Load.Rate * c.Replays}
		p.keys, p.rest = append(p.keys, key), p.rest-part
		p.upTo[key.slot+1] += key.replays
	}
	p.rest = max(0, p.rest)
	for slot := range slots {
		p.upTo[slot+1] += p.upTo[slot]
	}
	return p
}

// most returns how many replays of popular keys the master with the most of them has in a second.
func (p popular) most(masters int) (most float64) {
	if p.upTo == nil {
		return 0
	}
	first := func(master int) int { return (master*slots + masters - 1) / masters } // Simulate gives a slot to master slot*masters/slots
	for master := range masters {
		most = max(most, p.upTo[first(master+1)]-p.upTo[first(master)])
	}
	return most
}

// weights returns the sum of 1/r^s over all ranks r up to n. Beyond those that are drawn it takes the integral for the sum.
func weights(n int, s float64) (sum float64) {
	exact := min(n, maxPopular)
	for rank := 1; rank <= exact; rank++ {
		sum += math.Pow(float64(rank), -s)
	}
	from, to := float64(exact)+0.5, float64(n)+0.5
	if s == 1 {
		return sum + math.Log(to/from)
	}
	return sum + (math.Pow(to, 1-s)-math.Pow(from, 1-s))/(1-s)
}
