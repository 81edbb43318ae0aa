//go:build race

package baretest

// stride is how many handlers a chain skips: with the race detector, each chain gets every eighth one.
const stride = 8
