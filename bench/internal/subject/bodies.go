package subject

import (
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

// head returns the beginning of a random payment, before its lines.
func (r Bodies) head() string {
	first, last := r.one(firstNames), r.one(lastNames)
	id, state, amount, currency := r.id("pay_", 16), r.one(states), 100+r.IntN(1_000_000), r.one(currencies)
	created := time.UnixMilli(1_760_000_000_000 + r.Int64N(30_000_000_000)).UTC().Format(time.RFC3339Nano)
	customer, city := r.id("cus_", 12), r.one(cities)
	email := strings.ToLower(fmt.Sprintf("%s.%s%d@example.com", first, last, r.IntN(1000)))
	return fmt.Sprintf(`{"id":%q,"object":"payment","state":%q,"amount":%d,"currency":%q,`, id, state, amount, currency) +
		fmt.Sprintf(`"created_at":%q,"customer":{"id":%q,"name":%q,`, created, customer, first+" "+last) +
		fmt.Sprintf(`"email":%q,"city":%q},"lines":[`, email, city)
}

// line returns a random article of a payment.
func (r Bodies) line() string {
	id, title := r.id("art_", 12), r.one(kinds)+" "+r.one(goods)
	return fmt.Sprintf(`{"article":%q,"title":%q,"quantity":%d,"unit_price":%d}`, id, title, 1+r.IntN(9), 100+r.IntN(9900))
}

// Next returns another body of a size in bytes, which must be at least 400. Lines fill most of it, and a note the rest.
func (r Bodies) Next(size int) string {
	const toNote, end = `],"note":"`, `"}`
	head := r.head()
	missing := size - len(head+toNote+end)
	var lines []string
	for left := missing; left > 152; {
		text := r.line()
		lines, left = append(lines, text), left-len(text)-1
	}
	all := strings.Join(lines, ",")
	missing -= len(all)
	note := ""
	for len(note) < missing {
		note += r.one(words) + " "
	}
	return head + all + toNote + note[:missing] + end
}
