//go:build !race

package baretest

// stride is how many handlers a chain skips: without the race detector, none.
const stride = 1
