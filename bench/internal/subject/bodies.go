package subject

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Bodies makes response bodies: payments in JSON, the same ones for the same seed. Field names repeat from one body to the
// next, and names, cities, states and goods come from lists of 5 to 20; ids, amounts and times are random.
type Bodies struct{ *rand.Rand }

// NewBodies returns the bodies of a seed.
func NewBodies(seed uint64) Bodies { return Bodies{rand.New(rand.NewPCG(seed, seed))} }

// payment is the response body.
type payment struct {
	ID       string    `json:"id"`
	Object   string    `json:"object"`
	State    string    `json:"state"`
	Amount   int       `json:"amount"`
	Currency string    `json:"currency"`
	Created  time.Time `json:"created_at"`
	Customer customer  `json:"customer"`
	Lines    []line    `json:"lines"`
	Note     string    `json:"note"`
}

// customer is the part of a payment about its customer.
type customer struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Email string `json:"email"`
	City  string `json:"city"`
}

// line is one article of a payment.
type line struct {
	Article  string `json:"article"`
	Title    string `json:"title"`
	Quantity int    `json:"quantity"`
	Price    int    `json:"unit_price"`
}

// The lists that texts come from.
var (
	firstNames = strings.Fields("Ada Bela Carla Dario Elif Femi Greta Hana Ivan Jun Katja " +
		"Luis Mina Noor Olga Priya Quentin Rosa Sven Tomo")
	lastNames = strings.Fields("Abe Becker Costa Diallo Eriksen Fischer Garcia Haddad Ito Jensen Kaya Lopes " +
		"Moreau Nagy Okafor Popov Rossi Silva Tanaka Weber")
	cities     = strings.Fields("Berlin Lyon Porto Oslo Kyoto Lagos Quito Turin Graz Gent")
	states     = strings.Fields("captured authorised pending settled refunded")
	currencies = strings.Fields("EUR USD GBP JPY CHF")
	goods      = strings.Fields("tea coffee cocoa honey rice salt pepper ginger oil vinegar")
	kinds      = strings.Fields("green black white ground whole dried raw mild dark smoked")
	words      = strings.Fields("please leave the parcel at back door ring twice after six call before delivery " +
		"gift wrap no invoice inside second floor left side thanks")
)

// one returns a random element.
func (r Bodies) one(of []string) string { return of[r.IntN(len(of))] }

// id returns a random id with a number of hexadecimal digits.
func (r Bodies) id(prefix string, digits int) string {
	return prefix + fmt.Sprintf("%016x", r.Uint64())[16-digits:]
}

// payment returns a random payment without lines.
func (r Bodies) payment() payment {
	first, last := r.one(firstNames), r.one(lastNames)
	return payment{
		ID: r.id("pay_", 16), Object: "payment", State: r.one(states), Amount: 100 + r.IntN(1_000_000), Currency: r.one(currencies),
		Created: time.UnixMilli(1_760_000_000_000 + r.Int64N(30_000_000_000)).UTC(),
		Customer: customer{
			ID: r.id("cus_", 12), Name: first + " " + last, City: r.one(cities),
			Email: strings.ToLower(fmt.Sprintf("%s.%s%d@example.com", first, last, r.IntN(1000))),
		},
	}
}

// line returns a random line.
func (r Bodies) line() line {
	return line{r.id("art_", 12), r.one(kinds) + " " + r.one(goods), 1 + r.IntN(9), 100 + r.IntN(9900)}
}

// Next returns another body of a size in bytes, which must be at least 400.
func (r Bodies) Next(size int) string {
	p := r.payment()
	for missing := size - len(p.json()); missing > 150; {
		l := r.line()
		text, _ := json.Marshal(l) // cannot fail
		p.Lines, missing = append(p.Lines, l), missing-len(text)-1
	}
	missing := size - len(p.json())
	for len(p.Note) < missing {
		p.Note += r.one(words) + " "
	}
	p.Note = p.Note[:missing]
	return p.json()
}

// json returns the payment as text.
func (p payment) json() string {
	b, _ := json.Marshal(p) // cannot fail
	return string(b)
}
