package idem_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	idem "github.com/go-idem/idem/adapters/client"
)

// The first response is lost on its way. The transport sends the same request with the same key again.
func ExampleTransport() {
	var keys []string
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		if len(keys) == 1 {
			panic(http.ErrAbortHandler) // The connection breaks.
		}
		fmt.Fprint(w, "payment 1")
	}))
	defer provider.Close()

	client := &http.Client{Transport: &idem.Transport{
		Pause: func(int) time.Duration { return time.Millisecond }, // The default grows from attempt to attempt.
	}}
	response, err := client.Post(provider.URL, "application/json", strings.NewReader(`{"amount": 100}`))
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	fmt.Println(response.StatusCode, "requests:", len(keys), "one key:", keys[0] == keys[1])
	// Output: 200 requests: 2 one key: true
}

// A key that is derived from the order stays the same after a crash of the client.
func ExampleWithKey() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Idempotency-Key"))
	}))
	defer provider.Close()

	r, err := http.NewRequest(http.MethodPost, provider.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	r = r.WithContext(idem.WithKey(r.Context(), "order-7-payment"))
	response, err := (&http.Client{Transport: &idem.Transport{}}).Do(r)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	var sent string
	_, _ = fmt.Fscan(response.Body, &sent)
	fmt.Println(sent)
	// Output: "order-7-payment"
}
