package compress_test

import (
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"time"
)

// order is what the answers of a shop look like: names repeat from one to the next, values do not.
type order struct {
	ID       string            `json:"id"`
	Object   string            `json:"object"`
	Status   string            `json:"status"`
	Created  time.Time         `json:"created_at"`
	Currency string            `json:"currency"`
	Customer map[string]string `json:"customer"`
	Items    []item            `json:"items"`
	Links    map[string]string `json:"links"`
}

type item struct {
	SKU      string `json:"sku"`
	Title    string `json:"title"`
	Quantity int    `json:"quantity"`
	Cents    int    `json:"unit_price_cents"`
}

// orders makes outcomes, the same ones for the same seed.
type orders struct{ *rand.Rand }

func newOrders(seed uint64) orders { return orders{rand.New(rand.NewPCG(seed, seed))} }

func (r orders) one(of ...string) string { return of[r.IntN(len(of))] }

func (r orders) hex(bytes int) string {
	b := make([]byte, bytes)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return hex.EncodeToString(b)
}

// outcome returns one of at least size bytes.
func (r orders) outcome(size int) []byte {
	self := "https://api.example.com/v1/orders/" + r.hex(12)
	o := order{
		ID: "ord_" + r.hex(12), Object: "order", Status: r.one("accepted", "paid", "shipped"), Currency: "EUR",
		Created:  time.Unix(1_700_000_000+r.Int64N(100_000_000), 0).UTC(),
		Customer: map[string]string{"id": "cus_" + r.hex(8), "city": r.one("Berlin", "Lyon", "Porto"), "email": r.hex(4) + "@example.com"},
		Links:    map[string]string{"self": self, "invoice": self + "/invoice"},
	}
	const head = "1\x00\xc9\x01\x00\x02\x02\x1b\x2a" // Content-Type: application/json, and the name Location
	for {
		body, err := json.Marshal(o)
		if err != nil {
			panic(err)
		}
		missing := size - len(head) - len(self) - len(body) - 4
		if missing <= 0 {
			return append(append([]byte(head+self), body...), r.hex(2)...)
		}
		for range missing/150 + 1 {
			o.Items = append(o.Items, r.item())
		}
	}
}

func (r orders) item() item {
	return item{
		SKU: "SKU-" + r.hex(4), Title: r.one("green", "black", "white", "mint") + " tea, " + r.one("loose", "bags", "pressed"),
		Quantity: 1 + r.IntN(9), Cents: 100 + r.IntN(9000),
	}
}

// raw is a dictionary of 4 KiB: other answers, one after another.
func (r orders) raw() []byte {
	var b []byte
	for len(b) < 4096 {
		b = append(b, r.outcome(700)...)
	}
	return b[len(b)-4096:]
}
